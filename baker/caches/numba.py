"""Numba's functions compiled with `cache=True` (`NUMBA_CACHE_DIR`): an index `.nbi` and data files `.nbc` a function.

Checked with Numba 0.65 (real functions). An index holds Numba's version, the source file's modification time and size, and the signatures with
the name and features of the processor; a difference is a miss, never wrong code. Both files are pickles: only the version, a plain string in
front, is read, as opcodes.
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain, regular
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_DATA = re.compile(r"(.+)\.\d+\.nbc")
_HEAD = 4096  # bytes that hold the version's pickle


class Numba(Plain):
    """Kind `numba`."""

    name = "numba"
    title = "Numba: functions compiled with cache=True"
    stability = 10

    def pins(self, live: str) -> Mapping[str, str]:
        """`NUMBA_CACHE_DIR`; its default is `__pycache__` beside the source."""
        return {"NUMBA_CACHE_DIR": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Versions and the processor; its features are in the key."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.numba", "pkg.llvmlite"])
        remedy = "the code is for the processor that compiled it: bake on the kind that serves"
        rows.append(Row("cpu.isa", "superset", facts.get("cpu.isa"), "hard", self.name, remedy))
        return [*rows, *same(self.name, facts, ["cpu.model"], severity="soft", remedy=remedy)]

    def factors(self, root: Path) -> Mapping[str, Any]:
        """The versions of Numba that wrote the indexes."""
        versions = {version for path in regular(root, "**/*.nbi") if (version := index_version(path))}
        return {"functions": sum(1 for _ in root.rglob("*.nbi")), "versions": sorted(versions)}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Indexes that do not begin with a version, and data that no index names."""
        found = list(super().problems(root, paths))
        empty = {finding.message.partition(" ")[0] for finding in found}
        indexes = {path[: -len(".nbi")] for path in paths if path.endswith(".nbi")}
        for path in paths:
            if path.endswith(".nbi") and path not in empty and not index_version(root / path):
                found.append(Finding("index-damaged", "hard", self.name, f"{path} is no index of Numba", "no version in front", "a version", AGAIN))
            elif (match := _DATA.fullmatch(path)) and match.group(1) not in indexes:
                found.append(Finding("index-missing", "hard", self.name, f"{path} has no index: it is never found", None, "a file .nbi", AGAIN))
        return found


def index_version(path: Path) -> str:
    """Numba's version at the head of an index, read as pickle opcodes without running them; "" when there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD)
        for opcode, argument, _ in pickletools.genops(data):
            if isinstance(argument, str):
                return argument if re.fullmatch(r"[0-9][0-9A-Za-z.+]{0,40}", argument) else ""
            if opcode.name not in ("PROTO", "FRAME"):
                return ""
    except (OSError, ValueError, struct.error, OverflowError):
        return ""
    return ""
