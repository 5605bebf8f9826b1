"""The mount table of this process, and the mount that a path lies on."""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, NamedTuple, Optional

MOUNTS = "/proc/self/mountinfo"  # proc(5): id parent major:minor root point options … - type source options


class Mount(NamedTuple):
    """Where a path lies: mount point, type of the file system, flags ("rw", "noexec", …)."""

    point: str
    type: str
    flags: List[str]


def table(path: str = MOUNTS) -> Dict[str, Mount]:
    """Mount points and what is on them, later mounts over earlier ones; {} where the kernel does not tell."""
    found: Dict[str, Mount] = {}
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return found
    for line in lines:
        head, dash, tail = line.partition(" - ")
        left, right = head.split(" "), tail.split(" ")
        if dash and len(left) >= 6 and len(right) >= 3:
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), left[4])
            found[point] = Mount(point, right[0], left[5].split(","))
    return found


def of(path: str, mounts: Mapping[str, Mount]) -> Optional[Mount]:
    """The mount that `path` lies on; None when it cannot be told."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return None
    while real not in mounts:
        if real == "/":
            return None
        real = os.path.dirname(real)
    return mounts[real]
