"""C++ and CUDA extensions that torch builds at run time (`TORCH_EXTENSIONS_DIR`), one directory a name.

Checked with torch 2.13.0+cpu (real builds of `load_inline`), read in 2.14. torch asks the C++ compiler for its version before it runs ninja, so the
compiler must be there even when nothing is stale. Extensions that nvcc builds: unproven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baker.caches.base import same
from baker.caches.ninjatree import NinjaTree
from baker.inside.manifest import Row
from baker.spec import Target


class TorchExtensions(NinjaTree):
    """Kind `torch_extensions`."""

    name = "torch_extensions"
    title = "torch: C++ and CUDA extensions built by ninja"
    stability = 30
    packages = ("pkg.torch",)
    variables = (*NinjaTree.variables, "TORCH_CUDA_ARCH_LIST")

    def pins(self, live: str) -> Mapping[str, str]:
        """`TORCH_EXTENSIONS_DIR`; set, torch adds no directory for Python and CUDA versions below it."""
        return {"TORCH_EXTENSIONS_DIR": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Also the Python ABI, and a C++ compiler."""
        need = "install g++ or set CXX: torch asks the compiler for its version before it runs ninja"
        rows = [*super().rows(facts, target), *same(self.name, facts, ["python.abi"])]
        return [*rows, Row("tool.cxx", "present", True, "hard", self.name, need)]
