"""A full disk, told the way design 5.1 asks for: what was needed, what was free, where."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baker.errors import MachineError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def free(path: Path) -> int:
    """Bytes that this user may still write on the file system of `path` (its nearest existing parent)."""
    stat = os.statvfs(_existing(path))
    return stat.f_bavail * stat.f_frsize


def _existing(path: Path) -> Path:
    while not os.path.exists(path) and path != path.parent:  # noqa: PTH110 - Path.exists raises for a name that is too long
        path = path.parent
    return path


@contextmanager
def room(path: Path, needed: int, what: str) -> Iterator[None]:
    """Turn every failure of the file system while writing `what` into MachineError; `needed` is the most bytes that it can take."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            left, inodes = free(path), os.statvfs(_existing(path))
            without = ", but no file can be added (no free inode)" if inodes.f_files and not inodes.f_favail else ""
            raise MachineError(
                f"no space left while writing {what}: up to {needed} bytes needed, {left} bytes free{without} at {path}",
                code="no-space",
                found=f"{left} bytes free{without}",
                expected=f"up to {needed} bytes",
                remedy=f"free space at {path} or choose another directory, then run the same command again: warmed caches are kept",
                needed=needed,
                free=left,
                path=str(path),
            ) from error
        raise MachineError(
            f"cannot write {what} at {path}: {error.strerror or error}",
            code="not-writable",
            found=error.strerror or str(error),
            expected="a writable directory",
            remedy="choose another directory, or run as its owner",
            path=str(path),
        ) from error
