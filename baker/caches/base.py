"""The contract of a cache kind: one file in this folder, one line in `ALL`.

A kind knows where its files are, which of them may ship, what makes them valid, and what a reader can learn from them without running them.
It never imports torch, triton or vllm, and never unpickles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from baker.inside.finding import Finding
from baker.inside.manifest import Pattern, Row
from baker.spec import Target


@dataclass(frozen=True, slots=True)
class Keep:
    """The decision over one path: "keep", "drop" (debris: counted and said) or "refuse" (the bake fails)."""

    verdict: Literal["keep", "drop", "refuse"]
    reason: str = ""


KEEP = Keep("keep")


class CacheKind(Protocol):
    """What baker knows of one family of cache files."""

    name: str
    title: str
    stability: int  # layer order: lower changes less often and goes first
    path_bound: bool  # entries hold absolute paths: useless at another live directory
    mutable: tuple[Pattern, ...]  # paths that may be new or change in a warm start, with the reason; never code
    depth: int  # leading components of a path that make an entry, which start may leave out alone; 0: the kind is one whole
    mtimes: bool  # validity is an order of modification times: they are kept in layers
    debug: tuple[str, ...]  # fnmatch patterns of files that only people read: a layer of their own
    lean: Mapping[str, str]  # variables with which the owner writes no such files; they touch no key
    copy: tuple[str, ...]  # fnmatch patterns of files that the owner rewrites in place: copied into live, not linked

    def pins(self, live: str) -> Mapping[str, str]:
        """Environment variables that point the owner at `<live>/<name>`."""
        ...

    def keep(self, path: str, size: int) -> Keep:
        """Decide over one regular file, `path` relative to the kind's root; debris of any kind is gone by then (baker.pack.content)."""
        ...

    def unit(self, path: str) -> str:
        """The entry that the path belongs to, as a path: what --allow-partial leaves out together. A hard finding's text begins with such a path."""
        ...

    def role(self, path: str) -> str:
        """ "inert" for files that nothing runs (IR, sources, diagnostics), else "code"."""
        ...

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Requirements with the values seen on the builder; `facts["factor.<name>"]` is what `factors` found, where the cache is at hand."""
        ...

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Key factors read from the cache itself; {} where it keeps none."""
        ...

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """What is wrong with the kept files as a whole: partial entries, zero bytes, missing ranks. Hard ones fail the bake."""
        ...


def same(owner: str, facts: Mapping[str, Any], names: Sequence[str], *, severity: str = "hard", remedy: str = "") -> list[Row]:
    """An `eq` row for each named fact, with the builder's value."""
    return [Row(name, "eq", facts.get(name), severity, owner, remedy or f"bake again where {name} is what this machine has") for name in names]
