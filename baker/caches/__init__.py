"""Cache kinds. A new one is one file here and one line in `ALL`."""

from __future__ import annotations

from baker.caches.base import CacheKind
from baker.caches.bytecode import Bytecode
from baker.caches.flashinfer import Flashinfer
from baker.caches.inductor import Inductor
from baker.caches.nv import Nv
from baker.caches.triton import Triton
from baker.caches.vllm import Vllm

ALL: tuple[CacheKind, ...] = (Bytecode(), Flashinfer(), Inductor(), Nv(), Triton(), Vllm())


def by_name(name: str) -> CacheKind:
    """The kind of that name. Raises KeyError: callers only pass names that come from `ALL` or a runtime."""
    return {kind.name: kind for kind in ALL}[name]
