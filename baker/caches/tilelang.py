"""TileLang's kernels (`TILELANG_CACHE_DIR`): `<version>/<os-machine>/kernels/<key>/{device_kernel.cu,host_kernel.cu,kernel_lib.so,params.pkl}`.

Read in TileLang 0.1.12 (cache/kernel_cache.py, cache/cuda_binary_cache.py), not run: unproven, only made trees have been packed. The key covers
the function, its target (with the architecture), backend and flags; an entry that lacks a file is removed and compiled again by nvcc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import same
from baker.caches.plain import Plain, lacking
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_KERNEL = re.compile(r"[^/]+/[^/]+/kernels/[0-9a-f]{64}/")
# Backends name the library differently: kernel_cache.py and the nvrtc and CuTe DSL adapters.
_MEMBERS = ("params.pkl", "kernel_lib.so|kernel.cubin|kernel.so|kernel.py")


class Tilelang(Plain):
    """Kind `tilelang`."""

    name = "tilelang"
    title = "TileLang: compiled kernels (unproven)"
    stability = 30
    depth = 4
    dropped = (("tmp/*", "unfinished build"), ("*/.staging/*", "unfinished build"))
    inert: tuple[str, ...] = ("*.cu", "*/resource_usage.json")

    def pins(self, live: str) -> Mapping[str, str]:
        """`TILELANG_CACHE_DIR`; its temporary directory is `tmp` below it."""
        return {"TILELANG_CACHE_DIR": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Version and processor are in the path, the architecture in the key; parameters are pickles."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.tilelang"])
        for name in ("TILELANG_DISABLE_CACHE", "TILELANG_KERNEL_CACHE_USE_LIB_STAMP"):
            value = facts.get(f"env.{name}")
            rows.append(Row(f"env.{name}", "eq", value, "hard", self.name, f"set {name} as at the bake: it decides what is looked for"))
        return [*rows, *gpu.rows(self.name, facts)]

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Kernels by version and machine."""
        found: dict[str, int] = {}
        for path in root.glob("*/*/kernels/*"):
            name = path.parent.parent.relative_to(root).as_posix()
            found[name] = found.get(name, 0) + 1
        return found

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Kernels without library or parameters."""
        kernels = [path for path in paths if _KERNEL.match(path)]
        return [*super().problems(root, paths), *lacking(self.name, "kernel-partial", kernels, 4, _MEMBERS)]
