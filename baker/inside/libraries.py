"""System libraries as the dynamic loader would find them, without loading them: which file, and which symbol versions it offers."""

from __future__ import annotations

import os
import re
from typing import Mapping, Optional, Tuple

CACHE = "/etc/ld.so.cache"  # glibc: strings of "soname NUL path NUL" behind the table; read as text, the table is not needed
_LARGEST = 64 << 20  # bytes of a library that is read for its versions; libstdc++ has two million


def _directories(env: Mapping[str, str]) -> Tuple[str, ...]:
    machine = os.uname().machine
    own = tuple(part for part in env.get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/"))
    return (*own, *(base + "/%s-linux-gnu" % machine for base in ("/lib", "/usr/lib")), "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


def find(soname: str, env: Mapping[str, str], cache: str = CACHE) -> Optional[str]:
    """The path of a library: in LD_LIBRARY_PATH, the usual directories, or the loader's cache; None when it is in none."""
    if "/" in soname or "\0" in soname:
        return None
    for directory in _directories(env):
        path = os.path.join(directory, soname)
        if "\0" not in path and os.path.isfile(path):
            return path
    try:
        with open(cache, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    for match in re.finditer(rb"\0(/[^\0]+/" + re.escape(os.fsencode(soname)) + rb")\0", data):
        path = os.fsdecode(match.group(1))
        if os.path.isfile(path):
            return path
    return None


def newest(path: Optional[str], family: str) -> Optional[str]:
    """The newest version of `family` (GLIBCXX) that a library names; None without one."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    found = re.findall(family.encode("ascii") + rb"_(\d+(?:\.\d+)+)\0", data)
    versions = sorted((tuple(int(part[:9]) for part in text.split(b".")), text.decode("ascii")) for text in found)
    return versions[-1][1] if versions else None
