"""Files that appear whole or not at all: written under a partial name, synced, then renamed."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PREFIX = ".partial-"  # of files that are not whole yet


def sync_directory(path: Path) -> None:
    """Make a rename in `path` survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(directory: Path) -> int:
    """Remove partial files whose writer is gone (its lock died with it); returns how many."""
    gone = 0
    for path in directory.glob(PREFIX + "*"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # another sweep was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            gone += 1
        except BlockingIOError:
            continue  # somebody is writing it
        finally:
            os.close(fd)
    return gone


@contextmanager
def partial(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A locked new file in `directory`; it is removed unless `commit` renamed it away, whatever happens."""
    path = directory / f"{PREFIX}{secrets.token_hex(8)}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(fd, "wb") as handle:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield handle, path
    finally:
        path.unlink(missing_ok=True)


def commit(handle: BinaryIO, path: Path, target: Path) -> None:
    """Give a partial file its real name. Afterwards it is on disk, with its content, under that name."""
    handle.flush()
    os.fchmod(handle.fileno(), 0o644)
    os.fsync(handle.fileno())
    path.rename(target)
    sync_directory(target.parent)


def write(target: Path, data: bytes) -> None:
    """Replace `target` by `data` in one step."""
    with partial(target.parent) as (handle, path):
        handle.write(data)
        commit(handle, path, target)
