"""Looking at a tree's names without opening its files: directories without following links, special files by their type, links to their end."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from baker.errors import ArtifactError, MachineError
from baker.pack.source import changed, shown


class Refused(Exception):  # noqa: N818 - collected, then raised as one ArtifactError
    """A path that must not ship; `why` may quote names, so it is masked before it is shown."""

    def __init__(self, path: str, code: str, why: str) -> None:
        super().__init__(path)
        self.path, self.code, self.why = path, code, why


def names(directory: Path, path: str) -> Sequence[str]:
    """Names in one directory of the tree, never through a link. Raises ArtifactError, MachineError without permission."""
    try:
        # O_NOFOLLOW: a directory that was swapped for a link since it was listed must not lead out.
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if path else 0) | os.O_CLOEXEC)
    except FileNotFoundError:
        raise changed(path or str(directory), "it vanished") from None
    except PermissionError as error:
        raise MachineError(
            f"{shown(path) or directory}: not readable", code="not-readable", found=str(error.strerror), remedy="run as the owner of the caches"
        ) from error
    except OSError as error:
        raise ArtifactError(
            f"{shown(path) or directory}: cannot be listed: {error.strerror}", code="file-unreadable", expected="a directory"
        ) from error
    try:
        return os.listdir(fd)  # noqa: PTH208 - pathlib cannot list a descriptor
    finally:
        os.close(fd)


def special(mode: int) -> str:
    """What a file that is neither regular, link nor directory is."""
    tests: tuple[tuple[Callable[[int], bool], str], ...] = (
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
    )
    return next((name for test, name in tests if test(mode)), "special file")


def follow(root: Path, path: str) -> str:
    """Where a link inside the tree ends, relative to the root. Raises Refused unless that is a regular file of the same tree.

    `root` holds no link itself.
    """
    inside = str(root).rstrip("/") + "/"
    try:
        real = os.path.realpath(root / path, strict=True)
    except OSError as error:
        raise Refused(path, "link-broken", f"link to {shown(str((root / path).readlink()))}: {error.strerror}") from error
    if not real.startswith(inside):
        raise Refused(path, "link-out", f"link out of the tree, to {shown(real)}")
    mode = os.lstat(real).st_mode
    if not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise Refused(path, "link-refused", "link to a directory: only links to regular files can ship")
        raise Refused(path, "not-a-file", f"link to a {special(mode)}")
    return real[len(inside) :]
