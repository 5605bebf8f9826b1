"""A constant path to the driver's library, for the one link step that Triton may need at run time.

Triton compiles a small launcher module against libcuda.so.1 on first use, and the directory in which it looks for the library is part of the
module's key (runtime/build.py and backends/nvidia/driver.py, 3.5 to 3.9). Builder and node mount the driver at different places, so the image pins
TRITON_LIBCUDA_PATH to one directory in live, and every start puts a link to this machine's library there. A hit never looks at it.
"""

from __future__ import annotations

import os
import stat
from typing import List, Mapping

from baker.inside.finding import Finding

VARIABLE = "TRITON_LIBCUDA_PATH"
DIRECTORY = ".libcuda"  # below live; baker.inside.live does not count it as content
LIBRARY = "libcuda.so.1"


def make(env: Mapping[str, str], live: str, library: object) -> List[Finding]:
    """Link `<live>/.libcuda/libcuda.so.1` to `library`, where the variable points there. A soft finding when that fails; raises nothing."""
    directory = os.path.join(live, DIRECTORY)
    if env.get(VARIABLE) != directory:
        return []
    remedy = "only matters when Triton must build its launcher here: put libcuda.so.1 into a directory that the linker searches"
    if not isinstance(library, str) or not library:
        return [Finding("driver-link", "soft", "triton", "libcuda.so.1 was not found: Triton could not link against it", None, LIBRARY, remedy)]
    if not os.path.isfile(library):
        return [Finding("driver-link", "soft", "triton", "the driver's library is gone", library, "a file", remedy)]
    try:
        fd = _open(directory)
        try:
            _place(fd, library)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        text = "no link to libcuda.so.1 in live: %s" % error
        return [Finding("driver-link", "soft", "triton", text, None, os.path.join(directory, LIBRARY), remedy)]
    return []


def _open(directory: str) -> int:
    """The directory, made if need be; a link or file in its place is removed, never followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.mkdir(directory, 0o775)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            os.unlink(directory)
            os.mkdir(directory, 0o775)
    return os.open(directory, flags)


def _place(fd: int, library: str) -> None:
    """Exactly this link under the library's name; whatever else has that name goes, but a directory with content (OSError)."""
    try:
        mode = os.lstat(LIBRARY, dir_fd=fd).st_mode
    except FileNotFoundError:
        mode = 0
    if stat.S_ISLNK(mode) and os.readlink(LIBRARY, dir_fd=fd) == library:
        return
    if stat.S_ISDIR(mode):
        os.rmdir(LIBRARY, dir_fd=fd)
    elif mode:
        os.unlink(LIBRARY, dir_fd=fd)
    os.symlink(library, LIBRARY, dir_fd=fd)
