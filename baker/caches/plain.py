"""What most kinds do alike: a kind that says only what differs inherits the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from baker.caches.base import KEEP, Keep
from baker.inside.finding import Finding
from baker.inside.manifest import Pattern

AGAIN = "bake again; --allow-partial leaves the entry out"


class Plain:
    """Defaults of `CacheKind`: every file ships, each is an entry of its own, empty ones fail the bake."""

    name = ""
    path_bound = False
    mtimes = False
    mutable: tuple[Pattern, ...] = ()
    copy: tuple[str, ...] = ()
    debug: tuple[str, ...] = ()
    lean: Mapping[str, str] = MappingProxyType({})
    inert: tuple[str, ...] = ()  # fnmatch patterns of files that nothing runs on a hit
    dropped: tuple[tuple[str, str], ...] = ()  # (fnmatch pattern, why such a file does not ship)
    depth = 0  # leading components of a path that make an entry; 0: each file is for itself

    def keep(self, path: str, size: int) -> Keep:
        """All but what `dropped` names."""
        reason = next((why for pattern, why in self.dropped if fnmatchcase(path, pattern)), "")
        return Keep("drop", reason) if reason else KEEP

    def unit(self, path: str) -> str:
        """The first `depth` components."""
        return "/".join(path.split("/")[: self.depth]) if self.depth else path

    def role(self, path: str) -> str:
        """By the patterns of `inert`."""
        return "inert" if any(fnmatchcase(path, pattern) for pattern in self.inert) else "code"

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Nothing that can be read without running it."""
        return {}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Empty files."""
        return zero_bytes(self.name, root, paths)


def zero_bytes(kind: str, root: Path, paths: Sequence[str], allowed: tuple[str, ...] = ("*__init__.py",)) -> list[Finding]:
    """A hard finding for each empty file: a writer that died after it opened the file (case O-11)."""
    remedy = "bake again; pass --allow-partial to leave the file out"
    return [
        Finding("empty-file", "hard", kind, f"{path} is empty", "0 bytes", "content", remedy)
        for path in paths
        if (root / path).stat().st_size == 0 and not any(fnmatchcase(path, pattern) for pattern in allowed)
    ]


def entries(paths: Sequence[str], depth: int) -> dict[str, list[str]]:
    """Paths with more than `depth` components by their first `depth` ones: entry -> names below it."""
    found: dict[str, list[str]] = {}
    for path in paths:
        parts = path.split("/")
        if len(parts) > depth:
            found.setdefault("/".join(parts[:depth]), []).append("/".join(parts[depth:]))
    return dict(sorted(found.items()))


def lacking(kind: str, code: str, paths: Sequence[str], depth: int, members: Sequence[str]) -> list[Finding]:
    """A hard finding for each entry that lacks one of `members`; an item `a|b` is met by either."""
    found = []
    for entry, names in entries(paths, depth).items():
        missing = [member for member in members if not any(name in names for name in member.split("|"))]
        if missing:
            text = f"{entry} is not whole: {', '.join(missing)} is missing"
            found.append(Finding(code, "hard", kind, text, ", ".join(sorted(names)[:6]), ", ".join(members), AGAIN))
    return found


def regular(root: Path, pattern: str) -> list[Path]:
    """Regular files below `root`, sorted: what a writer left as pipe, socket or device is never opened."""
    return sorted(path for path in root.glob(pattern) if path.is_file())


def printable(text: str) -> str:
    """The text with characters that would end or colour a line, or that are no text at all, escaped."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
