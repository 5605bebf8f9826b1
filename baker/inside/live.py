"""The live directory: whose it is, whether it may be used, and the private one that stands in when it may not.

A live directory carries a stamp (`.baker.json`: manifest digest and set) once start has filled it, and a lock. What is not ours is never deleted:
the content of another image goes to `.stale-<its digest>`, a foreign directory is left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from baker.inside import libcuda
from baker.inside.finding import Finding
from baker.inside.inventory import shown

STAMP, LOCK, STALE = ".baker.json", ".baker.lock", ".stale-"
# A fresh ext4 volume brings lost+found; it is nobody's cache.
IGNORED = frozenset((STAMP, LOCK, "lost+found", libcuda.DIRECTORY))
LOCK_S = 30.0  # another start fills in well below this; beyond it, it hangs
DIRECTORY_MODE = 0o775  # writable for group 0, in which arbitrary user ids run (OpenShift)


class Live(NamedTuple):
    """A claimed live directory; `private` when it is a stand-in. `lock` is an open descriptor that holds the lock (closed by exec)."""

    path: str
    private: bool
    lock: int


class UnusableError(Exception):
    """A directory that cannot be live; the text says why, with owner and mode."""


def _owner(path: str) -> str:
    status = os.stat(path)
    me = "this process runs as %d:%d" % (os.geteuid(), os.getegid())
    return "owner %d:%d, mode %04o; %s" % (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), me)


def read_stamp(path: str) -> Optional[Dict[str, Any]]:
    """The stamp of a live directory, None when there is none that can be read."""
    try:
        fd = os.open(os.path.join(path, STAMP), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = os.read(fd, 65536) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        stamp = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("digest"), str) else None


def write_stamp(path: str, digest: str, set_name: str) -> None:
    """Stamp a live directory, atomically. Raises OSError."""
    data = json.dumps({"digest": digest, "set": set_name, "schema": 1}, sort_keys=True).encode("ascii")
    write_atomically(os.path.join(path, STAMP), data, 0o664)


def write_atomically(path: str, data: bytes, mode: int) -> None:
    """Replace `path` (also when it is a link) by a file of `data`, whole or not at all. Raises OSError."""
    temporary = "%s.%d.%s" % (path, os.getpid(), os.urandom(4).hex())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def holds_files(path: str) -> bool:
    """Whether anything but directories lies below `path` (our stamp, lock and set-aside content do not count). Raises OSError."""
    for directory, below, files in os.walk(path, onerror=_raise):
        if directory == path:
            below[:] = [name for name in below if name not in IGNORED and not name.startswith(STALE)]
            files = [name for name in files if name not in IGNORED]
        if files or any(os.path.islink(os.path.join(directory, name)) for name in below):
            return True
    return False


def _raise(error: OSError) -> None:
    raise error


def _examine(path: str) -> None:
    """Raises UnusableError unless `path` is a real, writable directory that is empty or carries a stamp."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise UnusableError("%s: %s" % (shown(path), error.strerror)) from None
    if not stat.S_ISDIR(mode):
        raise UnusableError("%s is not a directory" % shown(path))
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise UnusableError("%s is not writable: %s" % (shown(path), _owner(path)))
    try:
        # The second look: another start may have stamped and begun to fill it between the first look and the walk.
        if read_stamp(path) is None and holds_files(path) and read_stamp(path) is None:
            raise UnusableError("%s holds files that baker did not put there; they are left alone" % shown(path))
    except OSError as error:
        raise UnusableError("%s cannot be read: %s" % (shown(path), error)) from None


def _lock(path: str) -> int:
    """Take the lock of a live directory within 30 s. Raises UnusableError."""
    try:
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o664)
    except OSError as error:
        raise UnusableError("%s cannot be locked: %s" % (shown(path), error.strerror)) from None
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError as error:
            if time.monotonic() > end:
                os.close(fd)
                raise UnusableError("%s: another start holds its lock for more than %g s (%s)" % (shown(path), LOCK_S, error.strerror)) from None
            time.sleep(0.02)


def temporary_directory(env: Mapping[str, str]) -> str:
    """The first writable one of $TMPDIR, /tmp, /var/tmp, /dev/shm. Raises UnusableError when there is none."""
    tried = [path for path in (env.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm") if path.startswith("/") and "\0" not in path]
    for path in tried:
        if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return path.rstrip("/") or "/"
    raise UnusableError("no writable temporary directory (looked at %s)" % ", ".join(tried))


def make_private(env: Mapping[str, str], name: str) -> str:
    """A new directory `baker-<name>-<random>` of our own, mode 0700, in the temporary directory. Raises UnusableError."""
    path = "%s/baker-%s-%s" % (temporary_directory(env), name, os.urandom(6).hex())
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise UnusableError("%s: %s" % (path, error.strerror)) from None
    return path


def claim(path: str, env: Mapping[str, str]) -> Tuple[Live, List[Finding]]:
    """Claim the live directory `path`, or a private one when it is absent, foreign, no directory or not writable, with the reason as a soft finding.

    Raises UnusableError when there is no place for a private one either.
    """
    try:
        _examine(path)
        return Live(path, False, _lock(path)), []
    except UnusableError as reason:
        private = make_private(env, "live")
        remedy = "mount a writable, empty volume at %s (emptyDir, or a directory that this user may write)" % shown(path)
        message = "a private live directory stands in: %s" % reason
        return Live(private, True, _lock(private)), [Finding("live-private", "soft", "", message, shown(private), shown(path), remedy)]


def set_aside(live: str, names: List[str], label: str, below: str = "") -> str:
    """Move entries `names` of `<live>/<below>` to `<live>/.stale-<label>[.n]/<below>`, replacing nothing there; returns where. Raises OSError."""
    base = os.path.join(live, STALE + label)
    number = 0
    while True:
        stale = "%s.%d" % (base, number) if number else base
        target = os.path.join(stale, below)
        if not any(os.path.lexists(os.path.join(target, name)) for name in names):
            break
        number += 1
    os.makedirs(target, exist_ok=True)
    for name in names:
        os.rename(os.path.join(live, below, name), os.path.join(target, name))
    return stale
