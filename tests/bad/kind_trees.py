"""Made trees of the kinds that no library can fill here, whole and damaged. The forms are those of the sources that each kind's file names."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bad.gpu_trees import cubin

Tree = Mapping[str, bytes]
KEY, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4


def module(text: bytes) -> bytes:
    """Byte code with its checksum, as the CuTe DSL writes it."""
    return text + zlib.crc32(text).to_bytes(4, sys.byteorder)


OBJECT = b"\x7fELF" + bytes(60) + struct.pack("<I", 7)

META = b'{"compiler_info": {"version": "Cuda compilation tools, release 13.0, V13.0.88"}, "compiler_options": {"arch": "90a"}}'
MIXED = {"cache/b.1/kernel.cu": b"x", "cache/b.1/kernel.cubin": cubin(100), "cache/b.1/meta.json": b"{}", "cache/b.1/.committed": b""}

WHOLE: dict[str, Tree] = {
    "deep_gemm": {
        f"cache/sm90_fp8_gemm_1d2d.{KEY[:32]}/{name}": content
        for name, content in (("kernel.cu", b"__global__"), ("kernel.cubin", cubin(90)), ("meta.json", META), (".committed", b""))
    },
    "cute_dsl": {"cute_dsl_kernel_1.mlir": module(b"MLIR byte code"), "pyir_class_facts/a.json": b"{}"},
    "quack": {f"{KEY}/{OTHER}.o": OBJECT},
    "flash_attention": {f"{KEY}/forward/{OTHER}.o": OBJECT},
    "tilelang": {
        f"0.1.12/linux-x86_64/kernels/{KEY}/{name}": b"content"
        for name in ("device_kernel.cu", "host_kernel.cu", "kernel_lib.so", "params.pkl")
    },
}  # fmt: skip

# (kind, what is done to the whole tree, code of the finding)
DAMAGED: list[tuple[str, str, Callable[[dict[str, bytes]], None], str]] = [
    ("deep_gemm", "no cubin", lambda tree: drop(tree, "kernel.cubin"), "kernel-partial"),
    ("deep_gemm", "no source", lambda tree: drop(tree, "kernel.cu"), "kernel-partial"),
    ("deep_gemm", "not committed", lambda tree: tree.update({"cache/b.1/kernel.cu": b"x", "cache/b.1/kernel.cubin": cubin(90)}), "kernel-partial"),
    ("deep_gemm", "empty cubin", lambda tree: replace(tree, "kernel.cubin", b""), "empty-file"),
    ("deep_gemm", "not a cubin", lambda tree: replace(tree, "kernel.cubin", b"\x7fELF" + bytes(60)), "kernel-damaged"),
    ("deep_gemm", "two architectures", lambda tree: tree.update(MIXED), "kernel-mixed"),
    ("cute_dsl", "truncated", lambda tree: replace(tree, ".mlir", module(b"MLIR byte code")[:-3]), "module-damaged"),
    ("cute_dsl", "flipped bit", lambda tree: replace(tree, ".mlir", b"L" + module(b"MLIR byte code")[1:]), "module-damaged"),
    ("cute_dsl", "one byte", lambda tree: replace(tree, ".mlir", b"M"), "module-damaged"),
    ("quack", "not an object", lambda tree: replace(tree, ".o", b"text"), "object-damaged"),
    ("quack", "two fingerprints", lambda tree: tree.update({f"{OTHER}/{KEY}.o": OBJECT}), "object-stale"),
    ("flash_attention", "empty", lambda tree: replace(tree, ".o", b""), "empty-file"),
    ("flash_attention", "two fingerprints", lambda tree: tree.update({f"{OTHER}/forward/{KEY}.o": OBJECT}), "object-stale"),
    ("tilelang", "no library", lambda tree: drop(tree, "kernel_lib.so"), "kernel-partial"),
    ("tilelang", "no parameters", lambda tree: drop(tree, "params.pkl"), "kernel-partial"),
]  # fmt: skip


def drop(tree: dict[str, bytes], end: str) -> None:
    """Remove the paths that end so."""
    for path in [path for path in tree if path.endswith(end)]:
        del tree[path]


def replace(tree: dict[str, bytes], end: str, content: bytes) -> None:
    """Give the paths that end so another content."""
    for path in [path for path in tree if path.endswith(end)]:
        tree[path] = content


def write(root: Path, tree: Tree) -> list[str]:
    """Write the tree; returns its paths, sorted."""
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return sorted(tree)
