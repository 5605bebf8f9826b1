"""Moving warm-up trees between the root and the work directory, which may lie on two file systems."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from baker.pack.unpack import remove


def size(tree: Path) -> int:
    """Bytes of the regular files below `tree`; what a path cannot name any more does not count."""
    total = 0
    for directory, _, names in os.walk(tree):
        for name in names:
            with suppress(OSError):
                info = os.lstat(os.path.join(directory, name))  # noqa: PTH118 - os.walk hands over text
                total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total


def move(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Move whole trees, all or none: renamed within a file system, else copied, and a source goes only after the last copy. Raises OSError."""
    copied = []
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in pairs:
            done.append((source, target))
            try:
                source.rename(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                copied.append(source)
                _copy(source, target)
    except BaseException:
        for source, target in reversed(done):
            if source in copied or source.exists():
                remove(target)
            else:
                target.rename(source)
        raise
    for source in copied:
        remove(source)


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_special)
    except shutil.Error as error:
        # copytree goes on after a failure and reports all of them as text: the first errno is lost, so the disk is asked.
        full = any("[Errno 28]" in str(reason) for _, _, reason in error.args[0])
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error.args[0][0][2]), str(source)) from None


def _special(directory: str, names: list[str]) -> set[str]:
    """Sockets, pipes and devices: no layer holds them, and a pipe would block the copy for ever (case O-28)."""
    modes = {name: os.lstat(os.path.join(directory, name)).st_mode for name in names}  # noqa: PTH118 - copytree hands over text
    return {name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))}
