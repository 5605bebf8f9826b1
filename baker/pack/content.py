"""What one file is, told from its name and its first bytes: debris, driver library, weights (cases O-14, O-21, O-51)."""

from __future__ import annotations

import json
import struct
from fnmatch import fnmatchcase

HEAD = 65536  # bytes that `weights` wants to see
LARGE = 100 << 20  # bytes; a file above it is reported: no kernel is that big, constants are
_WEIGHT_NAMES = ("*.safetensors", "*.gguf", "*.ggml", "pytorch_model*.bin", "consolidated*.pth", "*.ckpt")
# A model's weights carry them; the limit is the format's own (safetensors documents 100 MB for the header).
_LARGEST_HEADER = 100_000_000

# (pattern, reason); whatever the kind thinks of them, they never ship (design 5.2). A component makes everything below it debris.
# Writers: Triton `tmp.pid_<pid>_<uuid>` (runtime/cache.py), torch `.<pid>.<tid>.tmp` (write_atomic), CPython `<name>.pyc.<number>`, filelock.
_COMPONENTS = (
    ("tmp.pid_*", "temporary file"),
    ("*.tmp.*", "temporary file"),
    ("*.tmp-*", "temporary file"),
    (".tmp*", "temporary file"),
    ("precompiled_headers", "precompiled header"),
)
_NAMES = (
    ("*.lock", "lock"),
    ("*.lock.[0-9]*", "lock"),
    ("lock", "lock"),
    ("*.tmp", "temporary file"),
    ("*.pyc.[0-9]*", "temporary file"),
    *((pattern, "temporary file") for pattern in (".nfs*", ".fuse_hidden*", "*.part", "*.partial", "*.incomplete", "*.swp", "*~")),
    ("core.[0-9]*", "core dump"),
    ("*.gch", "precompiled header"),
    ("*.pch", "precompiled header"),
    ("gpu_p2p_access_cache_for_*.json", "P2P probe"),
    ("usage_stats.json", "usage statistics"),
    ("libcuda*.so*", "driver library"),
    ("libnvidia*.so*", "driver library"),
)


def debris(path: str, *, directory: bool) -> str:
    """Why a path never ships, "" when nothing speaks against it."""
    parts = path.split("/")
    for part in parts:
        for pattern, reason in _COMPONENTS:
            if fnmatchcase(part, pattern):
                return reason
    # A package may be called `lock`; a file may not.
    return "" if directory else next((reason for pattern, reason in _NAMES if fnmatchcase(parts[-1], pattern)), "")


def whiteout(path: str) -> bool:
    """True when a layer would read a component of the path as a deletion (OCI image specification, "Whiteouts"; case O-33)."""
    return any(part.startswith(".wh.") for part in path.split("/"))


def weights(path: str, head: bytes, size: int) -> str:
    """Which weight format a file is, "" for none. `head` is its first HEAD bytes, `size` its whole length."""
    if head[:4] == b"GGUF":
        return "GGUF weights"
    if _safetensors(head, size):
        return "safetensors weights"
    name = path.rsplit("/", 1)[-1]
    return "weights by name" if any(fnmatchcase(name.lower(), p) for p in _WEIGHT_NAMES) else ""


def _safetensors(head: bytes, size: int) -> bool:
    if len(head) < 9:
        return False
    (length,) = struct.unpack_from("<Q", head)
    if not 2 <= length <= min(_LARGEST_HEADER, size - 8) or head[8:9] != b"{":
        return False
    text = head[8 : 8 + length]
    if len(text) < length:
        return b'"data_offsets"' in text  # header longer than what was read
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(entries, dict) and any(isinstance(v, dict) and "data_offsets" in v for v in entries.values())
