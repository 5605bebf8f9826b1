"""The claim on a root: an flock that falls with its process, and a note in it that names holder and driver, so that leftovers are found by id."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from baker.errors import MachineError
from baker.pack.unpack import remove

LOCK = ".baker.lock"
PREFIX = "baker-"  # of temporary directories
# A killed build's driver ends its server within its grace periods (10 s each for INT, TERM, KILL); then the root is free.
LEFTOVER_S = 40.0


def started(pid: int) -> int:
    """Start time of a process in clock ticks since boot (/proc/PID/stat, field 22), to tell it from a later one of the same id; 0 when gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


class Claim:
    """A held lock file."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._note: dict[str, Any] = {"pid": os.getpid()}
        self._write()

    def driver(self, pid: int) -> None:
        """Note the driver of the start that is running; 0 when it has ended."""
        self._note["driver"] = [pid, started(pid)] if pid else None
        self._write()

    def temporary(self, directory: Path) -> None:
        """Note the directory of HOMEs and TMPDIRs, so that the next claim removes it if this process is killed."""
        self._note["temporary"] = str(directory)
        self._write()

    def release(self) -> None:
        """Forget the note: everything was ended in order."""
        self._file.truncate(0)

    def _write(self) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(json.dumps(self._note))
        self._file.flush()


@contextmanager
def claim(root: Path, what: str = "root") -> Iterator[Claim]:
    """Lock `<root>/.baker.lock`. Raises MachineError for a root that cannot be written, is held, or still has a killed build's driver at work.

    `what` is the option that names the directory: "root" or "work".
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Not through a link: what it points at would be emptied.
        file = os.fdopen(os.open(root / LOCK, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "a+", encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"cannot write to the {what} {root}",
            code="root-not-writable" if what == "root" else "work-not-writable",
            found=error.strerror or str(error),
            expected="a directory that this user may write",
            remedy=f"pass --{what} DIR{' (the image then only works at that path)' if what == 'root' else ''}, or make the directory",
        ) from None
    with file:
        note = _note(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MachineError(
                f"another build uses the {what} {root}",
                code="root-in-use" if what == "root" else "work-in-use",
                found=f"held by process {note.get('pid', 'unknown')}",
                expected=f"one build at a time a {what}",
                remedy=f"wait for it, end it, or pass another --{what}",
            ) from None
        _await_leftover(note, root)
        _remove_leftover(note)
        yield Claim(file)


def _note(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        note = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    if not isinstance(note, dict):
        return {}
    driver = note.get("driver")
    whole = isinstance(driver, list) and len(driver) == 2 and all(isinstance(value, int) for value in driver)
    return note if whole else {**note, "driver": None}


def _await_leftover(note: dict[str, Any], root: Path) -> None:
    pid, when = note.get("driver") or (0, 0)
    deadline = time.monotonic() + LEFTOVER_S
    while pid and started(pid) == when != 0:
        if time.monotonic() > deadline:
            raise MachineError(
                f"a build of the root {root} was killed, and its warm-up driver is still at work",
                code="driver-leftover",
                found=f"process {pid}",
                expected="it ends its server and itself within seconds",
                remedy=f"look at it and end it: kill {pid}",
            )
        time.sleep(0.2)


def _remove_leftover(note: dict[str, Any]) -> None:
    """Remove a killed build's temporary directory: only one of our own, by name, kind and owner."""
    path = Path(str(note.get("temporary") or "/"))
    try:
        info = path.lstat()
    except (OSError, ValueError):
        return
    if path.name.startswith(PREFIX) and stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
        remove(path)
