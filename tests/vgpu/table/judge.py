"""Pure: what a start did to each kind, and whether that agrees with what `start` had said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.vgpu.table.rows import Row

Tree = Mapping[str, Sequence[Any]]  # path -> [type, size, sha256 or link target]
USE, COLD = "use", "cold"


@dataclass(frozen=True)
class Played:
    """One start as it was observed. `before` is live as the server found it; `lines` maps names of log rules to texts."""

    status: str  # "ready", "died", "not-ready"
    seconds: float
    before: Mapping[str, Tree]
    after: Mapping[str, Tree]
    lines: Mapping[str, Sequence[str]]
    error: str = ""
    said: Mapping[str, str] = field(default_factory=dict)  # kind -> use or cold, from start's status file
    codes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    word: str = ""


@dataclass(frozen=True)
class Outcome:
    """hit, miss, partial (some of it was used, and more was added), refused, crash, unused; with numbers and evidence."""

    what: str
    had: int = 0
    new: int = 0
    changed: int = 0
    evidence: str = ""


def outcome(kind: str, played: Played, mutable: Sequence[str]) -> Outcome:
    """What the real code did with one kind."""
    before, after = played.before.get(kind, {}), played.after.get(kind, {})
    had = sum(1 for entry in before.values() if entry[0] in ("file", "link"))
    counted = [path for path, entry in after.items() if entry[0] in ("file", "link") and not any(fnmatchcase(path, pattern) for pattern in mutable)]
    new = [path for path in counted if path not in before]
    changed = [path for path in counted if path in before and list(before[path]) != list(after[path])]
    numbers = {"had": had, "new": len(new), "changed": len(changed)}
    if played.status != "ready":
        return Outcome("crash", **numbers, evidence=played.error[-300:])
    if kind == "vllm":
        if texts := played.lines.get("aot-refused"):
            return Outcome("refused", **numbers, evidence=texts[0][-300:])
        loaded = played.lines.get("aot-loaded") or played.lines.get("graphs-loaded") or []
        if loaded and not new and not changed:
            return Outcome("hit", **numbers, evidence=f"{len(loaded)} load line(s)")
        return Outcome("miss", **numbers, evidence=", ".join(_short(path) for path in new[:2]) or "no load line")
    if new or changed:
        what = "miss" if not had or _all_new(kind, before, new or changed) else "partial"
        return Outcome(what, **numbers, evidence=", ".join(_short(path) for path in (new or changed)[:3]))
    return Outcome("hit" if had else "unused", **numbers)


def _all_new(kind: str, before: Tree, new: Sequence[str]) -> bool:
    """Whether as much was made as had been there: then nothing of it was used. Triton counts in kernels."""
    if kind != "triton":
        return True
    kernels = {path.partition("/")[0] for path in before}
    return len({path.partition("/")[0] for path in new}) >= len(kernels) * 0.9


def _short(path: str) -> str:
    """A path with long hashes cut, for people."""
    return "/".join(part if len(part) <= 40 else part[:10] + "…" for part in path.split("/"))[-120:]


@dataclass(frozen=True)
class Judged:
    """One kind in one row. `agrees` is false for a disagreement without a written reason."""

    kind: str
    said: str
    codes: tuple[str, ...]
    done: Outcome  # through start
    forced: Outcome  # live filled unchecked
    agrees: bool
    note: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON object."""
        return asdict(self)


def judge(row: Row, kind: str, through: Played, forced: Played, mutable: Sequence[str]) -> Judged:
    """ "Use" must hit; "cold" must miss, fail or be refused with the kind forced in, else there must be a reason."""
    said = through.said.get(kind, COLD)
    done, force = outcome(kind, through, mutable), outcome(kind, forced, mutable)
    return settle(row, kind, said, tuple(through.codes.get(kind, ())), done, force)


def again(row: Row, stored: Mapping[str, Any]) -> Judged:
    """A stored judgement anew, by the reasons that stand in the row now."""
    done, forced = Outcome(**stored["done"]), Outcome(**stored["forced"])
    return settle(row, stored["kind"], stored["said"], tuple(stored["codes"]), done, forced)


def settle(row: Row, kind: str, said: str, codes: tuple[str, ...], done: Outcome, force: Outcome) -> Judged:
    """Whether what start said agrees with what was done, or why not."""
    reason = row.reasons.get(kind, "")
    if said == USE:
        agrees, note = done.what == "hit", "" if done.what == "hit" else f"shown, and {done.what}"
    else:
        agrees, note = force.what != "hit", "" if force.what != "hit" else "hidden, and it would have hit"
    note = f"{note}: {reason}" if note and reason else note
    return Judged(kind, said, codes, done, force, agrees or bool(reason), note)
