"""The CuTe DSL's own cache (`CUTE_DSL_CACHE_DIR`): compiled modules as MLIR byte code with a CRC-32 behind it, `<dsl>_<function>….mlir`.

Read in nvidia-cutlass-dsl 4.8.0 (base_dsl/cache_helpers.py, compile_backend.py), not run. The name's hash covers the module and the compile
options; modules that are compiled for export only are never cached. Also `pyir_class_facts/`, knowledge of Python classes. Unproven: only made
files have been packed.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_CRC = 4  # bytes behind the byte code, in the byte order of the machine


class CuteDsl(Plain):
    """Kind `cute_dsl`."""

    name = "cute_dsl"
    title = "CuTe DSL: compiled modules as MLIR byte code (unproven)"
    stability = 30

    def pins(self, live: str) -> Mapping[str, str]:
        """`CUTE_DSL_CACHE_DIR`; its default is below the temporary directory, named by user."""
        return {"CUTE_DSL_CACHE_DIR": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The DSL's version, Python, and the capability that it compiled for."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.nvidia-cutlass-dsl"])
        for name in ("CUTE_DSL_ARCH", "CUTE_DSL_NO_CACHE", "CUTE_DSL_DISABLE_FILE_CACHING"):
            value = facts.get(f"env.{name}")
            rows.append(Row(f"env.{name}", "eq", value, "hard", self.name, f"set {name} as at the bake: it decides what is looked for"))
        return [*rows, *gpu.rows(self.name, facts)]

    def factors(self, root: Path) -> Mapping[str, Any]:
        """The number of modules."""
        return {"modules": sum(1 for _ in root.glob("*.mlir"))}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Modules whose checksum is wrong: the DSL would warn and compile again."""
        found = list(super().problems(root, paths))
        empty = {finding.message.partition(" ")[0] for finding in found}
        for path in paths:
            if path.endswith(".mlir") and path not in empty and not intact((root / path).read_bytes()):
                found.append(Finding("module-damaged", "hard", self.name, f"{path} does not match its checksum", "another CRC-32", "its own", AGAIN))
        return found


def intact(data: bytes) -> bool:
    """Whether the last four bytes are the CRC-32 of the rest."""
    return len(data) > _CRC and int.from_bytes(data[-_CRC:], sys.byteorder) == zlib.crc32(data[:-_CRC])
