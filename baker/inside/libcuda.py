"""A constant path to the driver's library, for the one link step that Triton may need at run time.

Triton compiles a small launcher module against libcuda.so.1 on first use, and the directory in which it looks for the library is part of the
module's key (runtime/build.py and backends/nvidia/driver.py, 3.5 to 3.9). Builder and node mount the driver at different places, so the image pins
TRITON_LIBCUDA_PATH to one directory in live, and every start puts a link to this machine's library there. A hit never looks at it.
"""

from __future__ import annotations

import os
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
    path = os.path.join(directory, LIBRARY)
    try:
        os.makedirs(directory, exist_ok=True)
        if os.path.islink(path):
            if os.readlink(path) == library:
                return []
            os.unlink(path)
        os.symlink(library, path)
    except (OSError, ValueError) as error:
        return [Finding("driver-link", "soft", "triton", "no link to libcuda.so.1 in live: %s" % error, None, path, remedy)]
    return []
