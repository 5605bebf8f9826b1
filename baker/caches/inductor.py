"""Torch Inductor's own cache (`TORCHINDUCTOR_CACHE_DIR`): FX graphs, AOTAutograd entries, generated Python and C++ with its shared objects.

Checked with torch 2.13.0+cpu: the cache is relocatable; a key holds torch's sources, the Inductor configuration (CXX among it), the number of threads
and, for C++, the vector ISA that Inductor picks. Every hit takes a lock file, so live must be writable. Without a C++ compiler a fully cached server
dies on CPU, because the compiler is probed before the cached object is used. Entries are pickles that run at load: integrity is code integrity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import KEEP, Keep, same
from baker.caches.plain import Plain
from baker.inside.manifest import Pattern, Row
from baker.spec import Target


class Inductor(Plain):
    """Kind `inductor`."""

    name = "inductor"
    title = "torch Inductor: FX graph and AOTAutograd entries, generated code, shared objects"
    stability = 40
    mutable: tuple[Pattern, ...] = (Pattern("locks/*.lock", "Inductor takes a file lock for every key, on hits too"),)
    inert = ("*.cpp", "*.cu", "*.source", "*.ttir", "*.ttgir", "*.llir", "*.ptx")

    def pins(self, live: str) -> Mapping[str, str]:
        """`TORCHINDUCTOR_CACHE_DIR`; its default is a directory named by user below the temporary directory."""
        return {"TORCHINDUCTOR_CACHE_DIR": f"{live}/{self.name}"}

    def keep(self, path: str, size: int) -> Keep:
        """Triton's tree has its own kind and must not hide in here."""
        if path.startswith("triton/"):
            return Keep("drop", "Triton entries below Inductor's directory are per device index: pin TRITON_CACHE_DIR")
        return KEEP

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Versions, ABI and, on CPU, what `-march=native` code needs."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.torch"])
        if target.is_gpu:
            rows += [*gpu.rows(self.name, facts, product="hard"), *same(self.name, facts, ["pkg.triton"])]
            rows += same(self.name, facts, ["gpu.sm_count"], severity="soft")
            return rows
        rows += [
            Row(
                "cpu.isa",
                "superset",
                facts.get("cpu.isa"),
                "hard",
                self.name,
                "the objects hold instructions that this CPU lacks: bake on the older CPU",
            ),
            Row(
                "tool.cxx",
                "present",
                True,
                "hard",
                self.name,
                "install g++ or set CXX: without it the server dies, cached or not: Inductor looks for it first",
            ),
        ]
        rows += same(
            self.name, facts, ["cpu.vector"], remedy="Inductor picks another vector ISA here and compiles: set ATEN_CPU_CAPABILITY as at bake"
        )
        rows += same(
            self.name, facts, ["cpu.count"], remedy="the thread count is in Inductor's key: give the container as many CPUs as the builder had"
        )
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Counts only: the key factors stand inside pickles, which are never opened."""
        return {area: sum(1 for _ in (root / area).iterdir()) for area in ("fxgraph", "aotautograd") if (root / area).is_dir()}
