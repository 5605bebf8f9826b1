"""Cache trees for GPUs in their real formats, made without a GPU, and named ways to damage them.

The formats are those that Triton 3.8.0 and FlashInfer 0.7.2 wrote on the virtual GPU (tests/vgpu): group files with absolute child paths, metadata
with the key's hash and target, cubins of which only the ELF header matters here, ninja's build directory with its times.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIVE = "/opt/baker/live/triton"
STAGES = ("source", "ttir", "ttgir", "llir", "ptx")
MODULE = ".cache/flashinfer/0.7.2.post1/90a/cached_ops/sampling"


def key(text: str) -> tuple[str, str]:
    """(hex digest, directory name) of an entry."""
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest(), base64.b32encode(digest.digest()).decode().rstrip("=")


def cubin(sm: int, abi: int = 7, machine: int = 190) -> bytes:
    """An ELF64 header as ptxas writes it (ABI version 7: CUDA 12, 8: CUDA 13), and some bytes of "code"."""
    flags = 0x5A0000 | 0xD00 | sm if abi < 8 else 0x06000000 | sm << 8 | 0x04
    ident = b"\x7fELF\x02\x01\x01" + bytes([51 if abi < 8 else 65, abi]) + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, flags, 64, 56, 0, 64, 0, 0) + b"\x90" * 64


def kernel(root: Path, name: str = "add", sm: int = 90, abi: int = 7, live: str = LIVE) -> Path:
    """One whole kernel entry; returns its directory."""
    digest, directory = key(f"{name}-{sm}")
    home = root / directory
    home.mkdir(parents=True)
    for stage in STAGES:
        (home / f"{name}.{stage}").write_text(f"// {stage} of {name}\n")
    (home / f"{name}.cubin").write_bytes(cubin(sm, abi))
    metadata = {
        "hash": digest,
        "target": {"backend": "cuda", "arch": sm, "warp_size": 32},
        "arch": f"sm{sm}",
        "triton_version": "3.8.0",
        "name": name,
    }
    (home / f"{name}.json").write_text(json.dumps(metadata))
    files = [f"{name}.{stage}" for stage in (*STAGES, "cubin", "json")]
    (home / f"__grp__{name}.json").write_text(json.dumps({"child_paths": {file: f"{live}/{directory}/{file}" for file in files}}))
    return home


def triton(root: Path) -> Path:
    """Two kernels and the launcher module; returns the first kernel's directory."""
    first = kernel(root)
    kernel(root, "mul", abi=8)
    module = root / key("cuda_utils")[1]
    module.mkdir()
    (module / "cuda_utils.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF" + b"\0" * 60)
    return first


def flashinfer(root: Path) -> Path:
    """A module as ninja left it: objects older than the library; returns its directory."""
    home = root / MODULE
    home.mkdir(parents=True)
    (home / "build.ninja").write_text("ninja_required_version = 1.3\ncuda_home = /usr/local/cuda\n")
    (home / ".ninja_log").write_text("# ninja log v5\n")
    (home / ".ninja_deps").write_bytes(b"# ninjadeps\n\x04\0\0\0")
    for number, name in enumerate(("a.cuda.o", "b.cuda.o", "sampling.so")):
        (home / name).write_bytes(b"\x7fELF" + bytes(100))
        os.utime(home / name, ns=(0, (1_700_000_000 + number) * 10**9 + 5))
    return home


@dataclass(frozen=True)
class Bad:
    """A damage: the kind's finding code, and what its text or values must name."""

    make: Callable[[Path, Path], None]
    code: str
    names: str
    case: str = ""


def _cut(name: str) -> Callable[[Path, Path], None]:
    return lambda root, home: (home / name).write_bytes((home / name).read_bytes()[:10])


def _remove(name: str) -> Callable[[Path, Path], None]:
    return lambda root, home: (home / name).unlink()


def _empty(name: str) -> Callable[[Path, Path], None]:
    return lambda root, home: (home / name).write_bytes(b"")


def _nested(root: Path, home: Path) -> None:
    for pid in (72, 73):
        kernel(root / f"cache_{pid}", f"k{pid}")


def _moved(root: Path, home: Path) -> None:
    kernel(root, "moved", live="/home/user/.triton/cache")


def _other(root: Path, home: Path) -> None:
    home.rename(root / key("another")[1])


def _arch(root: Path, home: Path) -> None:
    (home / "add.cubin").write_bytes(cubin(80))


def _mixed(root: Path, home: Path) -> None:
    kernel(root, "old", sm=80)


def _newer(root: Path, home: Path) -> None:
    os.utime(home / "a.cuda.o", ns=(0, 1_800_000_000 * 10**9))


TRITON: dict[str, Bad] = {
    "group-cut": Bad(_cut("__grp__add.json"), "triton-damaged", "__grp__add.json", "O-14"),
    "group-missing": Bad(_remove("__grp__add.json"), "triton-partial", "__grp__", "O-11"),
    "cubin-missing": Bad(_remove("add.cubin"), "triton-partial", "add.cubin", "O-11"),
    "stage-missing": Bad(_remove("add.ttir"), "triton-partial", "add.ttir", "O-11"),
    "cubin-empty": Bad(_empty("add.cubin"), "empty-file", "add.cubin", "O-11"),
    "cubin-cut": Bad(_cut("add.cubin"), "triton-damaged", "no ELF header"),
    "cubin-foreign": Bad(lambda r, h: (h / "add.cubin").write_bytes(cubin(90, machine=62)), "triton-damaged", "machine 62"),
    "cubin-arch": Bad(_arch, "triton-arch", "sm_80", "O-13"),
    "metadata-cut": Bad(_cut("add.json"), "triton-damaged", "add.json"),
    "metadata-list": Bad(lambda r, h: (h / "add.json").write_text("[1]"), "triton-damaged", "list"),
    "metadata-nested": Bad(lambda r, h: (h / "add.json").write_text("[" * 100_000), "triton-damaged", "add.json"),
    "metadata-huge": Bad(lambda r, h: (h / "add.json").write_text(" " * (1 << 21)), "triton-damaged", "larger"),
    "another-key": Bad(_other, "triton-elsewhere", "another entry"),
    "process-id": Bad(_nested, "triton-foreign", "TRITON_CACHE_MANAGER", "O-08"),
    "moved": Bad(_moved, "triton-path", "/home/user/.triton/cache", "O-05"),
    "mixed": Bad(_mixed, "triton-mixed", "sm_80, sm_90", "O-13"),
}
FLASHINFER: dict[str, Bad] = {
    "not-linked": Bad(_remove("sampling.so"), "flashinfer-partial", "not linked"),
    "no-build-file": Bad(_remove("build.ninja"), "flashinfer-partial", "build.ninja"),
    "library-cut": Bad(lambda r, h: (h / "sampling.so").write_bytes(b"!<arch>"), "flashinfer-partial", "no shared object"),
    "library-empty": Bad(_empty("sampling.so"), "empty-file", "sampling.so"),
    "object-newer": Bad(_newer, "flashinfer-partial", "newer"),
}
