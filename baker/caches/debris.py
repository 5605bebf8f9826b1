"""Names that are never cache content, whatever the kind: locks, temporary files of racing writers, precompiled headers.

Sources: Triton writes `tmp.pid_<pid>_<uuid>` (triton runtime/cache.py), torch `.<pid>.<tid>.tmp` (write_atomic in torch/_inductor/codecache.py),
CPython `<name>.pyc.<number>`, filelock `*.lock`. A precompiled header is 156 MB, outside of what cache variables move (measured, torch 2.13).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from baker.caches.base import KEEP, Keep

_COMPONENTS = (
    ("tmp.pid_*", "temporary directory of a killed writer"),
    ("*.tmp.pid_*", "temporary file of a killed writer"),
    ("precompiled_headers", "precompiled header: bound to this compiler and host, never shipped"),
)
_NAMES = (
    ("lock", "lock file"),
    ("*.lock", "lock file"),
    ("*.tmp", "temporary file of a killed writer"),
    ("*.pyc.[0-9]*", "temporary file of a killed writer"),
    ("*.gch", "precompiled header: bound to this compiler and host, never shipped"),
    ("*.pch", "precompiled header: bound to this compiler and host, never shipped"),
)


def common(path: str) -> Keep:
    """Drop debris by name; keep the rest. `path` is relative with '/' separators."""
    parts = path.split("/")
    for part in parts:
        for pattern, reason in _COMPONENTS:
            if fnmatchcase(part, pattern):
                return Keep("drop", reason)
    for pattern, reason in _NAMES:
        if fnmatchcase(parts[-1], pattern):
            return Keep("drop", reason)
    return KEEP
