"""Reading files of a tree that nobody vouches for: never a device, never out of the root, never half of a file that changes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from baker.errors import ArtifactError, MachineError

CHUNK = 1 << 20  # bytes; below it tarfile-sized buffers cost 3 to 5 CPU seconds a gigabyte (shared facts, containers.md 4.1)
_REMEDY_CHANGED = "make sure that no server writes there any more, then pack again"


class Changed(Exception):  # noqa: N818 - a condition that is retried, not an error of its own
    """The file was not the same at the end of the reading as at its start."""


def shown(path: str) -> str:
    """`path` for messages: control characters and bytes that are not UTF-8 escaped."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a tree; `path` is relative to `root`, which holds no link itself. A link is followed only while it stays inside the root."""

    root: Path
    path: str

    @property
    def label(self) -> str:
        """The path as messages show it."""
        return shown(self.path)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the regular file. Raises ArtifactError for anything else, MachineError without permission, Changed when gone."""
        inside, real = str(self.root), os.path.realpath(self.root / self.path)
        if not real.startswith(inside.rstrip("/") + "/"):
            raise ArtifactError(f"{self.label}: links out of its tree", code="link-out", found=shown(real), expected=f"a path below {inside}")
        try:
            # O_NONBLOCK: a FIFO that took the file's place must not hang the build.
            fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(error) from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ArtifactError(
                    f"{self.label}: is no regular file any more", code="file-changed", expected="a regular file", remedy=_REMEDY_CHANGED
                )
            yield fd
        finally:
            os.close(fd)

    def _failed(self, error: OSError) -> Exception:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return Changed(self.path)
        if error.errno in (errno.EACCES, errno.EPERM):
            return MachineError(
                f"{self.label}: not readable", code="not-readable", found=str(error.strerror), remedy="run as the owner of the caches"
            )
        return ArtifactError(
            f"{self.label}: cannot be read: {error.strerror}", code="file-unreadable", found=str(error.strerror), expected="a readable file"
        )

    def chunks(self) -> Iterator[bytes]:
        """The content in pieces of CHUNK bytes. Raises Changed after the last one when the file moved on meanwhile."""
        with self.opened() as fd:
            before, count = os.fstat(fd), 0
            while chunk := _read_full(fd, self):
                count += len(chunk)
                yield chunk
            after = os.fstat(fd)
            if count != before.st_size or _state(before) != _state(after):
                raise Changed(self.path)


def changed(path: str, detail: str) -> ArtifactError:
    """The error for a file that would not hold still."""
    return ArtifactError(
        f"{shown(path)}: changed while it was read ({detail})", code="file-changed", expected="a file at rest", remedy=_REMEDY_CHANGED
    )


def _state(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _read_full(fd: int, source: Source) -> bytes:
    parts, left = [], CHUNK
    while left:
        try:
            piece = os.read(fd, left)
        except OSError as error:
            raise source._failed(error) from error
        if not piece:
            break
        parts.append(piece)
        left -= len(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)
