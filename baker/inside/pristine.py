"""Look at the pristine trees of a set as they lie in this container: what is there, what its bytes hash to, and what may hide them."""

from __future__ import annotations

import os
import stat
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from baker.inside import mountinfo
from baker.inside.inventory import Entry, InventoryError, hash_many, scan
from baker.inside.manifest import CacheSet, Kind

LEVELS = ("sizes", "code", "full")


class Survey(NamedTuple):
    """One kind's pristine directory. `error`: why it cannot be listed ("" when it was); `mount`: a mount point between the root and it, or ""."""

    entries: Mapping[str, Entry]  # hashed files carry their sha256
    unreadable: Mapping[str, str]  # path -> reason
    error: str = ""
    mount: str = ""


def directory(root: str, cache_set: CacheSet, kind: Kind) -> str:
    """Where a kind's pristine files are: `<root>/sets/<set>/<kind>`."""
    return "/".join((root.rstrip("/"), "sets", cache_set.name, kind.name))


def _ancestry(root: str, path: str) -> List[str]:
    """The directories from below `root` down to `path`."""
    parts = path[len(root.rstrip("/")) + 1 :].split("/")
    return ["/".join((root.rstrip("/"), *parts[: i + 1])) for i in range(len(parts))]


def _obstacle(steps: List[str]) -> str:
    """Why the last of `steps` is not a directory reached through directories only; "" when it is."""
    for step in steps:
        try:
            mode = os.lstat(step).st_mode
        except (OSError, ValueError) as error:
            return "%s: %s" % (step, error.strerror if isinstance(error, OSError) else error)
        if stat.S_ISLNK(mode):
            return "%s is a link, expected a directory" % step
        if not stat.S_ISDIR(mode):
            return "%s is not a directory" % step
    return ""


def _wanted(kind: Kind, entries: Mapping[str, Entry], level: str) -> List[str]:
    """Paths to hash: regular files of the manifest's size that the level asks for."""
    if level == "sizes":
        return []
    found = []
    for file in kind.files:
        entry = entries.get(file.path)
        if entry and entry.type == "file" and entry.size == file.size and (level == "full" or file.role != "inert"):
            found.append(file.path)
    return found


def _look(root: str, cache_set: CacheSet, kind: Kind, mounts: FrozenSet[str]) -> Survey:
    path = directory(root, cache_set, kind)
    steps = _ancestry(root, path)
    mount = next((step for step in steps if step in mounts), "")
    error = _obstacle(steps)
    if error:
        return Survey({}, {}, error, mount)
    try:
        return Survey(scan(path), {}, "", mount)
    except InventoryError as problem:
        return Survey({}, {}, str(problem), mount)


def survey(
    root: str, cache_set: CacheSet, level: str, limit_s: float = 0.0, progress: Optional[Callable[[int, int], None]] = None
) -> Dict[str, Survey]:
    """Look at every kind of the set: name -> Survey. Hashes what `level` ("sizes", "code", "full") asks for, of all kinds in one parallel pass.

    `limit_s` bounds the hashing in seconds (0: none): files not reached are unreadable with that reason. `progress(done, all)` counts files.
    """
    mounts = frozenset(mountinfo.table())
    looks = {kind.name: _look(root, cache_set, kind, mounts) for kind in cache_set.kinds}
    jobs: Dict[Tuple[str, str], str] = {}
    for kind in cache_set.kinds:
        base = directory(root, cache_set, kind)
        for path in _wanted(kind, looks[kind.name].entries, level):
            jobs[kind.name, path] = base + "/" + path
    total = len(jobs)
    hashed = hash_many(jobs, limit_s, (lambda done: progress(done, total)) if progress else None)
    for kind in cache_set.kinds:
        looks[kind.name] = _merge(kind, looks[kind.name], jobs, hashed, directory(root, cache_set, kind), limit_s)
    return looks


def _merge(
    kind: Kind, look: Survey, jobs: Mapping[Tuple[str, str], str], hashed: Mapping[Tuple[str, str], object], base: str, limit_s: float
) -> Survey:
    """The survey with hashes and reasons filled in. Files that the level does not hash must at least be readable by this user."""
    entries = dict(look.entries)
    unreadable: Dict[str, str] = {}
    for path, entry in look.entries.items():
        key = (kind.name, path)
        result = hashed.get(key)
        if isinstance(result, tuple):
            entries[path] = Entry("file", *result)
        elif isinstance(result, InventoryError):
            unreadable[path] = result.reason
        elif key in jobs:
            unreadable[path] = "not read within the %g s of BAKER_VERIFY_SECONDS" % limit_s
        elif entry.type == "file" and not os.access(base + "/" + path, os.R_OK):
            unreadable[path] = "may not be read by this user"
    return Survey(entries, unreadable, look.error, look.mount)
