"""Mounts that forbid execution: a shared object of a cache cannot be mapped from there ("failed to map segment from shared object", case O-18)."""

from __future__ import annotations

import os
from typing import List, Mapping, Optional

from baker.inside.finding import Finding
from baker.inside.inventory import shown
from baker.inside.live import UnusableError, temporary_directory
from baker.inside.manifest import CacheSet
from baker.inside.pristine import directory, mount_points


def _mount(path: str) -> str:
    """The mount point that `path` lies on when it is noexec, else ""; a path that is not there is nobody's."""
    try:
        if not os.statvfs(path).f_flag & os.ST_NOEXEC:
            return ""
    except (OSError, ValueError):
        return ""
    real, points = os.path.realpath(path), mount_points()
    while real != "/" and real not in points:
        real = os.path.dirname(real)
    return real


def _finding(severity: str, kind: str, what: str, path: str, effect: str) -> Optional[Finding]:
    mount = _mount(path)
    if not mount:
        return None
    message = "%s %s is on the noexec mount %s: %s" % (what, shown(path), shown(mount), effect)
    return Finding("mount-noexec", severity, kind, message, "noexec", "exec", "mount %s without noexec" % shown(mount))


def findings(root: str, cache_set: CacheSet, env: Mapping[str, str]) -> List[Finding]:
    """Hard for a kind whose baked shared objects cannot be mapped; soft for live and the temporary directory, where new ones would be written."""
    effect = "its shared objects cannot be loaded"
    kinds = [kind for kind in cache_set.kinds if any(file.path.endswith(".so") for file in kind.files)]
    found = [_finding("hard", kind.name, "the baked directory", directory(root, cache_set, kind), effect) for kind in kinds]
    effect = "what the server compiles there cannot be loaded"
    found.append(_finding("soft", "", "live", os.path.join(root, "live"), effect))
    try:
        temporary = temporary_directory(env)
    except UnusableError:
        temporary = ""  # said where one is needed
    found.append(_finding("soft", "", "the temporary directory", temporary, effect))
    return [finding for finding in found if finding]
