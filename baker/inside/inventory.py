"""What a directory tree holds: types, sizes, hashes. Made for hostile trees: nothing but regular files is ever opened, no link is followed out.

`walk` serves the warm-up driver (before and after a start) and the builder; `scan` and `hash_many` are its halves, which `start` uses apart because
it reads only the files that its level asks for. Paths are relative with '/'; directories are not listed; sizes are bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union

K = TypeVar("K")

TRIES = 3  # reads of a file that changes under the reader, before it is given up
DEPTH = 200  # nested directories; each level holds one descriptor while it is read
BLOCK = 1 << 20  # bytes a read; above it a file is hashed in pieces
# Threads: hashlib releases the GIL. Measured, 2,000 files of 100 KB: 0.157 s with one, 0.084 s with two (facts of the design, two cores).
THREADS = 4


class InventoryError(Exception):
    """A tree or file that cannot be read as it is; the text names the path, `reason` is the rest."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__("%s: %s" % (shown(path), reason))
        self.reason = reason


class Entry(NamedTuple):
    """`type` is "file", "link" or "other"; `value` the sha256 of a file (None when not asked for), a link's target, else None."""

    type: str
    size: int
    value: Optional[str] = None


class Followed(NamedTuple):
    """An Entry and, for a link, the sha256 of the regular file at its end ("" when there is none)."""

    type: str
    size: int
    value: Optional[str]
    content: str


def _read(fd: int, size: int, view: memoryview) -> Tuple[int, str]:
    """Hash an open file: bytes read and hex digest."""
    total = os.preadv(fd, [view], 0)
    hasher = hashlib.sha256(view[:total])
    while total < size:
        got = os.preadv(fd, [view], total)
        if not got:
            break
        hasher.update(view[:got])
        total += got
    return total, hasher.hexdigest()


def hash_file(path: str, buffer: Optional[memoryview] = None) -> Tuple[int, str]:
    """Size in bytes and sha256 of a regular file, read whole and unchanged.

    Raises InventoryError for anything that is not a regular file (never opened for reading), cannot be read, or changed in each of 3 reads.
    `buffer` is room to read into, for callers with many files.
    """
    view = memoryview(bytearray(BLOCK)) if buffer is None else buffer
    try:
        # O_NONBLOCK: the open of a FIFO returns at once instead of waiting for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise InventoryError(path, "cannot be opened: %s" % _why(error)) from None
    try:
        for _ in range(TRIES):
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise InventoryError(path, "not a regular file")
            total, digest = _read(fd, before.st_size, view)
            after = os.fstat(fd)
            if total == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns:
                return total, digest
    except OSError as error:
        raise InventoryError(path, "cannot be read: %s" % _why(error)) from None
    finally:
        os.close(fd)
    raise InventoryError(path, "changed while it was read, %d times in a row" % TRIES)


def shown(path: str) -> str:
    """`path` for people: on one line, undecodable and control characters escaped."""
    return path if path.isprintable() else path.encode("unicode_escape", "backslashreplace").decode("ascii")


def _why(error: Exception) -> str:
    """The reason without the path, which the message has already."""
    return getattr(error, "strerror", None) or str(error)


def _scan(fd: int, prefix: str, depth: int, found: Dict[str, Entry]) -> None:
    if depth > DEPTH:
        raise InventoryError(prefix, "more than %d directories deep" % DEPTH)
    with os.scandir(fd) as items:
        listing = list(items)
    for item in listing:
        path = prefix + item.name
        try:
            if item.is_file(follow_symlinks=False):
                found[path] = Entry("file", item.stat(follow_symlinks=False).st_size)
            elif item.is_symlink():
                target = os.readlink(item.name, dir_fd=fd)
                found[path] = Entry("link", len(os.fsencode(target)), target)
            elif item.is_dir(follow_symlinks=False):
                below = os.open(item.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                try:
                    _scan(below, path + "/", depth + 1, found)
                finally:
                    os.close(below)
            else:
                found[path] = Entry("other", 0)
        except FileNotFoundError:
            continue  # removed between the listing and the look: it is not there
        except OSError as error:
            raise InventoryError(path, "cannot be read: %s" % _why(error)) from None


def scan(root: str) -> Dict[str, Entry]:
    """Every path below `root` with type and size, hashes left out; {} when `root` does not exist. Raises InventoryError."""
    found: Dict[str, Entry] = {}
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return found
    except (OSError, ValueError) as error:
        raise InventoryError(root, "cannot be listed: %s" % _why(error)) from None
    try:
        _scan(fd, "", 0, found)
    except OSError as error:
        raise InventoryError(root, "cannot be listed: %s" % _why(error)) from None
    finally:
        os.close(fd)
    return found


Hashed = Union[Tuple[int, str], InventoryError]


def _worker(jobs: Iterable[Tuple[K, str]], results: Dict[K, Hashed], stop: threading.Event) -> None:
    buffer = memoryview(bytearray(BLOCK))
    for key, path in jobs:  # one list iterator for all threads: its next() is atomic under the GIL
        if stop.is_set():
            return
        try:
            results[key] = hash_file(path, buffer)
        except InventoryError as error:
            results[key] = error


def hash_many(jobs: Mapping[K, str], limit_s: float = 0.0, progress: Optional[Callable[[int], None]] = None) -> Dict[K, Hashed]:
    """Hash the files `jobs` (key -> path) in parallel: key -> (size, sha256) or the InventoryError.

    `limit_s` seconds bound the whole (0: none); keys not reached by then are absent. The calling thread only waits, in steps of at most 0.1 s, so
    that signal handlers run; `progress` is called about every 2 s with the number of files done.
    """
    results: Dict[K, Hashed] = {}
    stop = threading.Event()
    queue = iter(list(jobs.items()))
    count = min(THREADS, len(os.sched_getaffinity(0)), len(jobs))
    # Plain daemon threads: concurrent.futures would import logging (8 ms of a 200 ms budget) and join a thread that hangs on a dead disk.
    threads = [threading.Thread(target=_worker, args=(queue, results, stop), daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:  # the container's limit of processes is reached: whoever runs takes the rest, else this thread does it all
        threads = [thread for thread in threads if thread.is_alive()]
        if not threads:
            _worker(queue, results, stop)
    begin = said = time.monotonic()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)
            now = time.monotonic()
            if progress and now - said >= 2.0:
                said = now
                progress(len(results))
            if limit_s and now - begin > limit_s:
                stop.set()
                return dict(results)
    return results


def _hashes(jobs: Mapping[str, str]) -> Dict[str, Tuple[int, str]]:
    done: Dict[str, Tuple[int, str]] = {}
    for path, result in sorted(hash_many(jobs).items()):
        if isinstance(result, InventoryError):
            if os.path.lexists(jobs[path]):
                raise result
            continue  # removed since the listing
        done[path] = result
    return done


def walk(root: str, hash: bool = True) -> Dict[str, Entry]:
    """Inventory of the tree below `root`, sorted by path; {} when absent; without `hash` files carry None. Raises InventoryError naming the path."""
    found = scan(root)
    hashes = _hashes({path: os.path.join(root, path) for path, entry in found.items() if hash and entry.type == "file"})
    whole: Dict[str, Entry] = {}
    for path in sorted(found):
        entry = found[path]
        if path in hashes:
            entry = Entry("file", *hashes[path])
        elif hash and entry.type == "file":
            continue
        whole[path] = entry
    return whole


def walk_followed(root: str) -> Dict[str, Followed]:
    """Like `walk`, and each link also carries the hash of the regular file that it ends at: what a server sees in a live tree."""
    found = walk(root)
    ends = {path: os.path.realpath(os.path.join(root, path)) for path, entry in found.items() if entry.type == "link"}
    hashes = _hashes({path: end for path, end in ends.items() if os.path.isfile(end)})
    return {path: Followed(entry.type, entry.size, entry.value, hashes[path][1] if path in hashes else "") for path, entry in found.items()}


def paths(entries: Mapping[str, Entry], kind: str) -> List[str]:
    """Sorted paths of the entries of one type."""
    return sorted(path for path, entry in entries.items() if entry.type == kind)
