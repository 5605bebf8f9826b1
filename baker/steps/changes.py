"""What a start changed: two inventories in, a report out (design 5.6, "New or changed file").

Counted: a regular file or link that is new, or differs in type, size, sha256 or link target. Not counted: directories, sockets, pipes, mtimes, and
what a pattern with a reason allows. What a pattern matched is reported too, so that nobody has to trust the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from baker.inside.manifest import FileEntry, Pattern

Tree = Mapping[str, Sequence[Any]]  # path -> [type, size, sha256 or link target]


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths are `<root name>/<path>`; `allowed` maps "pattern: reason" to the paths that it matched."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """New, changed and vanished files together."""
        return len(self.new) + len(self.changed) + len(self.gone)

    def document(self) -> dict[str, Any]:
        """As JSON object."""
        return {
            "new": list(self.new),
            "changed": list(self.changed),
            "gone": list(self.gone),
            "allowed": {k: list(v) for k, v in self.allowed.items()},
        }


def _counts(entry: Sequence[Any] | None) -> bool:
    return entry is not None and entry[0] in ("file", "link")


def compare(name: str, before: Tree, after: Tree, patterns: Iterable[Pattern]) -> Changes:
    """Compare one root's inventories."""
    new, changed, gone = [], [], []
    allowed: dict[str, list[str]] = {}
    rules = list(patterns)
    for path in sorted(set(before) | set(after)):
        old, now = before.get(path), after.get(path)
        if not (_counts(old) or _counts(now)) or (old is not None and now is not None and list(old) == list(now)):
            continue
        rule = next((r for r in rules if fnmatchcase(path, r.pattern)), None)
        if rule is not None:
            allowed.setdefault(f"{rule.pattern}: {rule.reason}", []).append(f"{name}/{path}")
        elif not _counts(old):
            new.append(f"{name}/{path}")
        elif not _counts(now):
            gone.append(f"{name}/{path}")
        else:
            changed.append(f"{name}/{path}")
    return Changes(tuple(new), tuple(changed), tuple(gone), {k: tuple(v) for k, v in allowed.items()})


def merge(parts: Iterable[Changes]) -> Changes:
    """All roots together."""
    parts = list(parts)
    allowed: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for rule, paths in part.allowed.items():
            allowed[rule] = (*allowed.get(rule, ()), *paths)
    return Changes(
        tuple(p for part in parts for p in part.new),
        tuple(p for part in parts for p in part.changed),
        tuple(p for part in parts for p in part.gone),
        allowed,
    )


def expected_live(files: Sequence[FileEntry], pristine: str, live: Tree) -> dict[str, list[Any]]:
    """What a live tree must look like after `start` filled it and the server changed nothing.

    `start` links most files and copies some; both are right, so each expected entry takes the form that live has, with the manifest's content.
    """
    expected: dict[str, list[Any]] = {}
    for entry in files:
        now = live.get(entry.path)
        if now is not None and now[0] == "link":
            expected[entry.path] = ["link", now[1], f"{pristine}/{entry.path}"]
        else:
            expected[entry.path] = ["file", entry.size, entry.sha256]
    return expected
