"""What the directories of the caches lie on: mounts that forbid execution or writing, and network file systems.

noexec: a shared object of a cache cannot be mapped ("failed to map segment from shared object", case O-18). Network: shared objects that are in use
cannot be replaced there and handles go stale (pytorch#173679), and every start reads over the network.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping

from baker.inside.finding import Finding
from baker.inside.inventory import shown
from baker.inside.live import UnusableError, temporary_directory
from baker.inside.manifest import CacheSet
from baker.inside.mountinfo import Mount, of, table
from baker.inside.pristine import directory

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "9p", "afs", "beegfs", "glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.sshfs")


def facts(root: str, env: Mapping[str, str]) -> Dict[str, str]:
    """`fs.root`, `fs.live`, `fs.tmp`: "overlay /, rw relatime", for the status file."""
    mounts, found = table(), {}
    for name, path in (("root", root), ("live", os.path.join(root, "live")), ("tmp", _temporary(env))):
        mount = of(path, mounts) if path else None
        if mount:
            found["fs." + name] = "%s %s, %s" % (shown(mount.type), shown(mount.point), " ".join(mount.flags))
    return found


def _temporary(env: Mapping[str, str]) -> str:
    try:
        return temporary_directory(env)
    except UnusableError:
        return ""  # said where one is needed


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:
        return False


def _noexec(severity: str, kind: str, what: str, path: str, effect: str, mounts: Mapping[str, Mount]) -> List[Finding]:
    mount = of(path, mounts) if path and _exists(path) else None
    if mount is None or "noexec" not in mount.flags:
        return []
    message = "%s %s is on the noexec mount %s: %s" % (what, shown(path), shown(mount.point), effect)
    return [Finding("mount-noexec", severity, kind, message, "noexec", "exec", "mount %s without noexec" % shown(mount.point))]


def network(path: str, mounts: Mapping[str, Mount]) -> List[Finding]:
    """A soft finding when live lies on a network file system."""
    mount = of(path, mounts) if _exists(path) else None
    if mount is None or mount.type not in NETWORK:
        return []
    message = "live %s is on the network file system %s: files in use cannot be replaced there, and handles go stale" % (
        shown(path),
        shown(mount.point),
    )
    return [Finding("mount-network", "soft", "", message, mount.type, "a local disk or memory", "mount an emptyDir or a local volume at live")]


def findings(root: str, cache_set: CacheSet, env: Mapping[str, str]) -> List[Finding]:
    """Hard for a kind whose baked shared objects cannot be mapped; soft for live and the temporary directory, where new ones would be written."""
    mounts, live = table(), os.path.join(root, "live")
    found: List[Finding] = []
    for kind in cache_set.kinds:
        if any(file.path.endswith(".so") for file in kind.files):
            where = directory(root, cache_set, kind)
            found += _noexec("hard", kind.name, "the baked directory", where, "its shared objects cannot be loaded", mounts)
    effect = "what the server compiles there cannot be loaded"
    found += _noexec("soft", "", "live", live, effect, mounts)
    found += _noexec("soft", "", "the temporary directory", _temporary(env), effect, mounts)
    return found + network(live, mounts)
