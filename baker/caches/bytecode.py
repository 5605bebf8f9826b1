"""Python byte code (`PYTHONPYCACHEPREFIX`): baked when the base lacks valid `.pyc` files for more than 5 % of the modules that the server imports.

A `.pyc` names its source's mtime and size (PEP 552 timestamp form) or its hash; a stale one is ignored by CPython, so a wrong one cannot run.
With a prefix set CPython ignores the base's own `__pycache__`, hence all modules or none. Checked with CPython 3.11.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches.base import KEEP, Keep, same
from baker.caches.plain import Plain, regular
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

MISSING_SHARE = 0.05  # design 5.6: baked only above this share of modules without valid byte code


class Bytecode(Plain):
    """Kind `bytecode`."""

    name = "bytecode"
    title = "Python byte code of the modules that the server imports"
    stability = 10

    def pins(self, live: str) -> Mapping[str, str]:
        """`PYTHONPYCACHEPREFIX`."""
        return {"PYTHONPYCACHEPREFIX": f"{live}/{self.name}"}

    def keep(self, path: str, size: int) -> Keep:
        """Only `.pyc` files."""
        return KEEP if path.endswith(".pyc") else Keep("drop", "not byte code")

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The magic number belongs to the Python version."""
        return same(self.name, facts, ["python.version", "python.abi"])

    def factors(self, root: Path) -> Mapping[str, Any]:
        """The magic number that every file carries."""
        for path in regular(root, "**/*.pyc")[:1]:
            with path.open("rb") as file:
                return {"magic": file.read(4).hex()}
        return {}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Files too short to hold the 16-byte header of PEP 552."""
        return [
            Finding("bytecode-truncated", "hard", self.name, f"{path} is shorter than its header", None, "at least 16 bytes", "bake again")
            for path in paths
            if (root / path).stat().st_size < 16
        ]


def valid(source: Path, tag: str, magic: bytes) -> bool:
    """Whether `source` has byte code beside it that CPython `tag` ("cpython-311") would load."""
    cached = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
    try:
        with cached.open("rb") as file:
            header = file.read(16)
        stat = source.stat()
    except OSError:
        return False
    if len(header) < 16 or header[:4] != magic:
        return False
    flags, mtime, size = struct.unpack("<III", header[4:])
    return bool(flags & 1 or (mtime == int(stat.st_mtime) & 0xFFFFFFFF and size == stat.st_size & 0xFFFFFFFF))


def missing_share(modules: Sequence[str], tag: str, magic: bytes) -> float:
    """Share (0 to 1) of the source files in `modules` without valid byte code; 0.0 for none at all."""
    sources = [Path(module) for module in modules if module.endswith(".py")]
    if not sources:
        return 0.0
    return sum(1 for source in sources if not valid(source, tag, magic)) / len(sources)
