"""Cache kinds. A new one is one file here and one line in `ALL`."""

from __future__ import annotations

from baker.caches.base import CacheKind
from baker.caches.bytecode import Bytecode
from baker.caches.cute_dsl import CuteDsl
from baker.caches.deep_gemm import DeepGemm
from baker.caches.flash_attention import FlashAttention
from baker.caches.flashinfer import Flashinfer
from baker.caches.hf_modules import HfModules
from baker.caches.inductor import Inductor
from baker.caches.numba import Numba
from baker.caches.nv import Nv
from baker.caches.quack import Quack
from baker.caches.tilelang import Tilelang
from baker.caches.torch_extensions import TorchExtensions
from baker.caches.triton import Triton
from baker.caches.tvm_ffi import TvmFfi
from baker.caches.vllm import Vllm

ALL: tuple[CacheKind, ...] = (
    Bytecode(),
    CuteDsl(),
    DeepGemm(),
    FlashAttention(),
    Flashinfer(),
    HfModules(),
    Inductor(),
    Numba(),
    Nv(),
    Quack(),
    Tilelang(),
    TorchExtensions(),
    Triton(),
    TvmFfi(),
    Vllm(),
)


def by_name(name: str) -> CacheKind:
    """The kind of that name. Raises KeyError: callers only pass names that come from `ALL` or a runtime."""
    return {kind.name: kind for kind in ALL}[name]
