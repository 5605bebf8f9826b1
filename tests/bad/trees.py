"""Named bad cache trees. Each generator damages a sound tree in place; `TREES` says what the packer must answer.

`refused`: survey raises ArtifactError with this code, and its text names `names`. `dropped`: the path stays out, for this reason.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bad:
    make: Callable[[Path], None]
    case: str
    names: str = ""
    refused: str = ""
    dropped: str = ""


def _put(path: str, data: bytes = b"x" * 64) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    return make


def _link(path: str, target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / path).symlink_to(target)

    return make


def _socket(root: Path) -> None:
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{here}/sock")  # by descriptor: a socket's path is limited to 107 bytes
    finally:
        os.close(here)


def _fifo(root: Path) -> None:
    os.mkfifo(root / "pipe")


def _safetensors(path: str, size: int = 4096) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        header = b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as handle:
            handle.write(struct.pack("<Q", len(header)) + header)
            handle.truncate(size)  # sparse: a big one costs nothing, and must not be read through

    return make


def _hf_token() -> bytes:
    return b"hf_" + b"Ab3" * 12  # put together here, so that no scanner takes this file for a leak


def _pem() -> bytes:
    return b"-----BEGIN RSA " + b"PRIVATE KEY-----\nMIIE\n"


TREES: dict[str, Bad] = {
    "socket": Bad(_socket, "O-28", "sock", dropped="socket"),
    "fifo": Bad(_fifo, "O-28", "pipe", dropped="FIFO"),
    "whiteout": Bad(_put("d/.wh.cache"), "O-33", "d/.wh.cache", refused="whiteout-name"),
    "opaque": Bad(_put(".wh..wh..opq"), "O-33", ".wh..wh..opq", refused="whiteout-name"),
    "bare-whiteout": Bad(_put("d/.wh."), "O-33", "d/.wh.", refused="whiteout-name"),
    "whiteout-directory": Bad(_put(".wh.d/x"), "O-33", ".wh.d", refused="whiteout-name"),
    "link-out": Bad(_link("out", "/etc/hostname"), "", "out", refused="link-out"),
    "link-up": Bad(_link("up", "../../../../../etc/hostname"), "", "up", refused="link-out"),
    "link-directory": Bad(_link("dirlink", "c4"), "", "dirlink", refused="link-refused"),
    "link-broken": Bad(_link("gone", "no-such-file"), "", "gone", refused="link-broken"),
    "link-loop": Bad(_link("loop", "loop"), "", "loop", refused="link-broken"),
    "hub-token": Bad(_put("huggingface/token", b"x"), "O-50", "huggingface/token", refused="secret-found"),
    "stored-tokens": Bad(_put("huggingface/stored_tokens", b"x"), "O-50", "stored_tokens", refused="secret-found"),
    "netrc": Bad(_put(".netrc", b"x"), "O-50", ".netrc", refused="secret-found"),
    "docker-config": Bad(_put(".docker/config.json", b"{}"), "O-50", ".docker/config.json", refused="secret-found"),
    "token-in-code": Bad(_put("c4/gen.py", b"import os\nTOKEN = '" + _hf_token() + b"'\n"), "O-50", "c4/gen.py", refused="secret-found"),
    "aws-in-text": Bad(_put("c4/env.txt", b"id=AKIA" + b"Q3" * 8 + b"\n"), "O-50", "AWS access key id", refused="secret-found"),
    "key-in-text": Bad(_put("c4/k.txt", _pem()), "O-50", "private key", refused="secret-found"),
    "weights": Bad(_safetensors("model.safetensors", 2 << 30), "O-51", "2147483648 bytes", refused="weights-found"),
    "weights-by-hash": Bad(_safetensors("blobs/" + "a" * 64), "O-51", "a" * 64, refused="weights-found"),
    "weights-gguf": Bad(_put("m.bin", b"GGUF\x03\x00\x00\x00" + bytes(64)), "O-51", "m.bin", refused="weights-found"),
    "temporary-file": Bad(_put("k/x.cubin.tmp.pid_72_9f"), "O-14", "k/x.cubin.tmp.pid_72_9f", dropped="temporary file"),
    "temporary-directory": Bad(_put("tmp.pid_7_a/x.cubin"), "O-14", "tmp.pid_7_a/x.cubin", dropped="temporary file"),
    "lock": Bad(_put("k/lock"), "O-14", "k/lock", dropped="lock"),
    "lock-file": Bad(_put("locks/abc.lock"), "O-14", "locks/abc.lock", dropped="lock"),
    "precompiled-header": Bad(_put("h/x.gch"), "", "h/x.gch", dropped="precompiled header"),
    "driver-library": Bad(_put("l/libcuda.so.1"), "O-21", "l/libcuda.so.1", dropped="driver library"),
}

# Case O-29: names that a tar header of old cannot hold.
ODD_NAMES: tuple[str, ...] = (
    "n" * 100,
    "n" * 101,
    "n" * 155,
    "n" * 255,
    f"{'d' * 240}/{'f' * 200}",
    "/".join(["deep"] * 60 + ["end"]),
    "ümläut/日本.so",
    os.fsdecode(b"raw-\xff\xfe.bin"),
    os.fsdecode(b"long-\xff" + b"r" * 150),
    "new\nline.py",
    "back\\slash",
    " blank ",
    "-dash",
    "a=b",
    "q'u\"o",
)


def odd_names(root: Path) -> dict[str, bytes]:
    """Write one file under each odd name; returns name -> content."""
    files = {name: f"content {number}".encode() for number, name in enumerate(ODD_NAMES)}
    for name, data in files.items():
        _put(name, data)(root)
    return files
