"""The CUDA driver's own cache (`CUDA_CACHE_PATH`): machine code that the driver compiled from PTX. Opaque; valid for one driver version.

Current wheels load cubins, so it is often empty, and that is normal. Unproven: only made trees have been packed so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import same
from baker.caches.plain import Plain
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target


class Nv(Plain):
    """Kind `nv`."""

    name = "nv"
    title = "CUDA driver: code compiled from PTX (unproven)"
    stability = 60
    copy: tuple[str, ...] = ("index", "*/index")  # the driver rewrites its index in place

    def pins(self, live: str) -> Mapping[str, str]:
        """`CUDA_CACHE_PATH`; its default lies in HOME, which differs between builder and server."""
        return {"CUDA_CACHE_PATH": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The driver's version is hard here, and only here (case O-20)."""
        return [*gpu.rows(self.name, facts, driver="hard"), *same(self.name, facts, ["cpu.arch"])]

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """The format is closed: nothing that may be judged."""
        return []
