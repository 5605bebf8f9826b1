"""TVM-FFI modules built by ninja (`TVM_FFI_CACHE_DIR`): `<name>_<sha256>/` with sources, `build.ninja`, objects and the shared object.

Checked with apache-tvm-ffi 0.1.15 (C++, real builds) and read in 0.1.11; the directory's hash covers sources, functions, flags and include paths.
Modules that nvcc builds: unproven.
"""

from __future__ import annotations

from collections.abc import Mapping

from baker.caches.ninjatree import NinjaTree


class TvmFfi(NinjaTree):
    """Kind `tvm_ffi`."""

    name = "tvm_ffi"
    title = "TVM-FFI: modules built by ninja"
    stability = 30
    packages = ("pkg.apache-tvm-ffi",)
    variables = (*NinjaTree.variables, "TVM_FFI_CUDA_ARCH_LIST")

    def pins(self, live: str) -> Mapping[str, str]:
        """`TVM_FFI_CACHE_DIR`; its default is `~/.cache/tvm-ffi`."""
        return {"TVM_FFI_CACHE_DIR": f"{live}/{self.name}"}
