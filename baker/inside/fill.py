"""Fill a claimed live directory from pristine: links to what is only read, copies of what the owner rewrites in place, nothing for hidden kinds.

A second fill of the same image changes nothing that is right: links that are stale are made anew, files that the server added stay, a changed copy or
a file in the place of a link goes to `.stale-<digest>` unless a mutable pattern allows it. Every step down is made without following links.
"""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from baker.inside.check import entry_of
from baker.inside.finding import Finding
from baker.inside.inventory import InventoryError, hash_file, shown
from baker.inside.live import DIRECTORY_MODE, IGNORED, STALE, Live, read_stamp, set_aside, write_stamp
from baker.inside.manifest import FileEntry, Kind

COPY_MODE = 0o664
BLOCK = 1 << 20


class FillError(Exception):
    """Live cannot be filled; the text names the path and the reason."""


class Job(NamedTuple):
    """One kind to show: its pristine directory."""

    kind: Kind
    pristine: str
    left_out: FrozenSet[str] = frozenset()  # damaged entries: not linked, and what an earlier start linked is removed


Tree = Dict[str, Any]  # name -> Tree for a directory, FileEntry for a file


def _tree(kind: Kind, left_out: FrozenSet[str]) -> Tree:
    """The kind's directories and files as nested dictionaries, so that each directory is opened once. Raises FillError."""
    root: Tree = {}
    for directory in kind.directories:
        if not left_out or entry_of(directory, kind.entry_depth) not in left_out:
            _descend(root, directory.split("/"))
    for file in kind.files:
        if left_out and entry_of(file.path, kind.entry_depth) in left_out:
            continue
        parts = file.path.split("/")
        node = _descend(root, parts[:-1])
        if parts[-1] in node:
            raise FillError("%s is both a file and a directory" % shown(file.path))
        node[parts[-1]] = file
    return root


def _descend(node: Tree, parts: Sequence[str]) -> Tree:
    for part in parts:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise FillError("%s is both a file and a directory" % shown("/".join(parts)))
    return node


class _Filler:
    """Fills one kind. `stale` collects paths (relative to the kind) that were in the way, as (directory, name)."""

    def __init__(self, live: str, job: Job, label: str) -> None:
        self.live, self.kind, self.pristine, self.label = live, job.kind, job.pristine, label
        self.left_out = job.left_out

    def run(self) -> None:
        top = os.open(self.live, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._directory(top, self.kind.name, _tree(self.kind, self.left_out), "")
            self._unlink_left_out()
        finally:
            os.close(top)

    def _unlink_left_out(self) -> None:
        """Remove the links that an earlier start made to entries that are damaged now; what the server wrote in their place stays."""
        for entry in sorted(self.left_out):
            top = os.path.join(self.live, self.kind.name, entry)
            if os.path.realpath(top) != os.path.join(os.path.realpath(self.live), self.kind.name, entry):
                continue  # a link in the way is never walked through
            for directory, _, names in os.walk(top):
                for name in names:
                    path = os.path.join(directory, name)
                    if os.path.islink(path) and os.readlink(path).startswith(self.pristine + "/"):
                        os.unlink(path)

    def _directory(self, parent: int, name: str, node: Tree, path: str) -> None:
        """Make and fill one directory; `path` is its own path in the kind, "" for the kind's root."""
        fd = self._open(parent, name, path)
        try:
            prefix = path + "/" if path else ""
            for child, value in node.items():
                if isinstance(value, dict):
                    self._directory(fd, child, value, prefix + child)
                elif any(fnmatchcase(value.path, pattern) for pattern in self.kind.copy):
                    self._copy(fd, child, value)
                else:
                    self._link(fd, child, value)
        finally:
            os.close(fd)

    def _open(self, parent: int, name: str, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        for _ in range(2):
            try:
                os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):  # a link or file: never written through
                    self._aside(path)
                    continue
            return os.open(name, flags, dir_fd=parent)
        raise FillError("%s/%s: something keeps taking its place" % (self.kind.name, shown(path)))

    def _link(self, fd: int, name: str, file: FileEntry) -> None:
        target = self.pristine + "/" + file.path
        try:
            os.symlink(target, name, dir_fd=fd)
            return
        except FileExistsError:
            mode = os.lstat(name, dir_fd=fd).st_mode
        if stat.S_ISLNK(mode):
            if os.readlink(name, dir_fd=fd) == target:
                return
            os.unlink(name, dir_fd=fd)  # a link that an earlier fill made
        elif self._keeps(mode, file):
            return
        else:
            self._aside(file.path)
        os.symlink(target, name, dir_fd=fd)

    def _keeps(self, mode: int, file: FileEntry) -> bool:
        """Whether what stands in the file's place may stay: a regular file with the right content, or one that the owner may change."""
        if not stat.S_ISREG(mode):
            return False
        if any(fnmatchcase(file.path, pattern.pattern) for pattern in self.kind.mutable):
            return True
        try:
            return hash_file(os.path.join(self.live, self.kind.name, file.path)) == (file.size, file.sha256)
        except InventoryError:
            return False

    def _copy(self, fd: int, name: str, file: FileEntry) -> None:
        try:
            mode = os.lstat(name, dir_fd=fd).st_mode
        except FileNotFoundError:
            mode = 0
        if mode:
            if self._keeps(mode, file):
                return
            if stat.S_ISLNK(mode):
                os.unlink(name, dir_fd=fd)
            else:
                self._aside(file.path)
        _copy_file(self.pristine + "/" + file.path, fd, name)

    def _aside(self, path: str) -> None:
        below, _, name = (self.kind.name + "/" + path if path else self.kind.name).rpartition("/")
        set_aside(self.live, [name], self.label, below)


def _copy_file(source: str, fd: int, name: str) -> None:
    """Copy bytes and times (some owners decide validity by time order) to a new file."""
    come_from = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        to = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, COPY_MODE, dir_fd=fd)
        try:
            for block in iter(lambda: os.read(come_from, BLOCK), b""):
                view = memoryview(block)
                while view:
                    view = view[os.write(to, view) :]
            status = os.fstat(come_from)
            os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(to)
    finally:
        os.close(come_from)


def _content(live: str, below: str = "") -> List[str]:
    """Names in `<live>/<below>` that are not baker's own marks."""
    return sorted(name for name in os.listdir(os.path.join(live, below)) if below or (name not in IGNORED and not name.startswith(STALE)))


def _empty(live: str, name: str, label: str) -> Iterator[Finding]:
    """Make a hidden kind's directory empty; what was in it is set aside."""
    path = os.path.join(live, name)
    if os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode):
        set_aside(live, [name], label)
    if not os.path.lexists(path):
        os.mkdir(path, DIRECTORY_MODE)
    content = _content(live, name)
    if content:
        stale = set_aside(live, content, label, name)
        yield Finding("live-set-aside", "soft", name, "hidden now: what an earlier start left was moved", len(content), 0, "see %s" % shown(stale))


def fill(live: Live, digest: str, set_name: str, show: Sequence[Job], hide: Sequence[str]) -> List[Finding]:
    """Bring a claimed live directory to exactly this: the kinds of `show` linked or copied, those of `hide` empty, stamped with the image's digest.

    Returns soft findings about what was moved. Raises FillError (live may then hold a part of it, every entry of it right).
    """
    label = digest.rpartition(":")[2][:12] or "unbound"
    before = os.umask(0o777 & ~DIRECTORY_MODE)
    findings: List[Finding] = []
    try:
        stamp = read_stamp(live.path)
        if stamp is not None and (stamp.get("digest"), stamp.get("set")) != (digest, set_name):
            findings += _retire(live.path, stamp)
        write_stamp(live.path, digest, set_name)
        for name in hide:
            findings += _empty(live.path, name, label)
        for job in show:
            _Filler(live.path, job, label).run()
    except (OSError, ValueError) as error:
        raise FillError("%s: %s" % (shown(live.path), error)) from None
    finally:
        os.umask(before)
    return findings


def _retire(live: str, stamp: Mapping[str, Any]) -> List[Finding]:
    """Move the content of another image or set out of the way."""
    content = _content(live)
    if not content:
        return []
    old = str(stamp["digest"]).rpartition(":")[2][:12]
    stale = set_aside(live, content, old if old.isalnum() else "unknown")
    message = "live held the content of another image or set; it was moved, not deleted"
    return [Finding("live-stale", "soft", "", message, "%s/%s" % (shown(old), shown(str(stamp.get("set")))), "this image", "see %s" % shown(stale))]


def move_variables(env: Mapping[str, str], pins: Mapping[str, str], image_live: str, live: str) -> Tuple[Dict[str, str], List[str]]:
    """Variables of `env` and absent ones of `pins` that name a path in `image_live`, as paths in `live`; and the names that changed."""
    moved = {name: value for name, value in pins.items() if name not in env}
    moved.update({name: value for name, value in env.items() if value == image_live or value.startswith(image_live + "/")})
    moved = {n: live + v[len(image_live) :] if v == image_live or v.startswith(image_live + "/") else v for n, v in moved.items()}
    return moved, sorted(name for name, value in moved.items() if env.get(name) != value)
