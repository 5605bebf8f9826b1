"""From a warmed directory to the list of files that ship: every path is kept, dropped with a reason, or refused. None is lost silently.

- Regular files are judged by the rules for all kinds (content.py), then by the kind's own `keep`, then by their content (secrets, weights).
- A link to a regular file inside the tree ships as that file's content under the link's name, and is said. Any other link is refused.
- Sockets, FIFOs and devices are left out with one remark each and never opened. Hard links are files.
- Names that a layer would read as deletions are refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from baker.errors import ArtifactError, BakerError, MachineError
from baker.inside.finding import Finding
from baker.inside.inventory import DEPTH, InventoryError, walk
from baker.inside.manifest import FileEntry
from baker.pack import content, leaks
from baker.pack.listing import Refused, follow, names, special
from baker.pack.source import Changed, Source, changed, shown

_TRIES = 3
_SHOWN = 20  # refused paths that an error's text lists; all are in its details


class Verdict(Protocol):
    """A kind's decision over one path."""

    @property
    def verdict(self) -> Literal["keep", "drop", "refuse"]:
        """What to do with the file."""
        ...

    @property
    def reason(self) -> str:
        """Why, for "drop" and "refuse"."""
        ...


class Kind(Protocol):
    """What the packer asks of a cache kind; baker.caches.base.CacheKind satisfies it."""

    name: str

    def keep(self, path: str, size: int) -> Verdict:
        """Decide over one regular file."""
        ...

    def role(self, path: str) -> str:
        """ "inert" or "code"."""
        ...

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """What is wrong with the kept files as a whole."""
        ...


@dataclass(frozen=True, slots=True)
class Dropped:
    """A path that does not ship, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What ships of one kind (sorted by the bytes of the path), what does not, and what was remarked. `directories` holds every real one."""

    kind: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    findings: tuple[Finding, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Dropped paths by reason."""
        return dict(sorted(Counter(d.reason for d in self.dropped).items()))

    @property
    def size(self) -> int:
        """Bytes of all files that ship."""
        return sum(f.size for f in self.files)

    def require_sound(self) -> None:
        """Raise ArtifactError that names every hard finding (partial entries, zero-byte files)."""
        hard = [f for f in self.findings if f.severity == "hard"]
        if hard:
            lines = "\n  ".join(f.line() for f in hard[:_SHOWN])
            raise ArtifactError(
                f"{self.kind}: {len(hard)} problem(s) in the cache:\n  {lines}",
                code=hard[0].code,
                expected="a whole cache",
                remedy="bake again from an empty directory, or pass --allow-partial to leave these entries out",
                findings=[f.document() for f in hard],
            )


class _Surveyor:
    def __init__(self, root: Path, kind: Kind, secrets: Mapping[str, str], weights: bool, mtimes: bool, exclude: Collection[str]) -> None:
        self.root, self.kind, self.secrets, self.weights, self.mtimes, self.exclude = root, kind, secrets, weights, mtimes, exclude
        self.dropped: list[Dropped] = []
        self.findings: list[Finding] = []
        self.refused: list[Refused] = []
        self.directories: list[str] = []
        self.candidates: list[str] = []

    def remark(self, code: str, path: str, message: str, **more: str | int) -> None:
        self.findings.append(Finding(code, "soft", self.kind.name, f"{shown(path)}: {message}", **more))  # type: ignore[arg-type]

    def walk(self) -> None:
        """Sort every path below the root into candidates, dropped and refused; directories are never entered through a link."""
        pending = [""]
        while pending:
            here = pending.pop()
            for name in names(self.root / here, here):
                path = f"{here}/{name}" if here else name
                try:
                    if self.place(path):
                        pending.append(path)
                except Refused as refusal:
                    self.refused.append(refusal)

    def place(self, path: str) -> bool:
        """Decide over one path before it is opened; True for a directory to enter."""
        if content.whiteout(path):
            raise Refused(path, "whiteout-name", "a layer would read this name as a deletion (.wh.)")
        try:
            info = (self.root / path).lstat()
        except FileNotFoundError:
            raise changed(path, "it vanished") from None
        except OSError as error:
            raise Refused(path, "file-unreadable", f"cannot be looked at: {error.strerror}") from error
        if reason := content.debris(path, directory=stat.S_ISDIR(info.st_mode)):
            self.dropped.append(Dropped(path, reason))
            if reason == "driver library":
                self.remark("driver-library", path, "belongs to the host's driver; left out")
            return stat.S_ISDIR(info.st_mode)  # entered, so that each file of it is counted
        if path.count("/") > DEPTH:
            raise Refused(path, "too-deep", f"more than {DEPTH} directories deep: start would not look there")
        if stat.S_ISDIR(info.st_mode):
            self.directories.append(path)
            return True
        self.place_file(path, info)
        return False

    def place_file(self, path: str, info: os.stat_result) -> None:
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            return self.leave_out(path, special(info.st_mode))
        decision = self.kind.keep(path, info.st_size)
        if path in self.exclude or decision.verdict == "drop":
            self.dropped.append(Dropped(path, "excluded on request" if path in self.exclude else decision.reason or "not part of the cache"))
            return None
        if decision.verdict == "refuse":
            raise Refused(path, "file-refused", decision.reason)
        if secret := leaks.by_name(path):
            raise Refused(path, "secret-found", secret)
        if stat.S_ISLNK(info.st_mode):
            try:
                end = follow(self.root, path)
            except Refused as refusal:
                if refusal.code != "not-a-file":
                    raise
                return self.leave_out(path, refusal.why)
            self.remark("link-resolved", path, "link inside the tree; ships as the file that it points at", found=shown(end))
        return self.candidates.append(path)

    def leave_out(self, path: str, what: str) -> None:
        """Drop a socket, pipe or device, or a link to one, with one remark (case O-28)."""
        self.dropped.append(Dropped(path, what))
        self.remark("not-a-file", path, f"{what} left out; a layer cannot hold it", found=what, expected="a regular file")

    def read(self, path: str) -> FileEntry:
        """Hash and scan one candidate; retried while it changes."""
        source, why = Source(self.root, path), ""
        for _ in range(_TRIES):
            try:
                return self.read_once(source)
            except Changed:
                why = f"{_TRIES} tries"
        raise changed(path, why)

    def read_once(self, source: Source) -> FileEntry:
        with source.opened() as fd:
            info = os.fstat(fd)
            head = os.pread(fd, content.HEAD, 0)
        if not self.weights and (what := content.weights(source.path, head, info.st_size)):
            raise Refused(source.path, "weights-found", f"{what}, {info.st_size} bytes")
        sha, scan, size = hashlib.sha256(), leaks.Scan(self.secrets), 0
        for chunk in source.chunks():
            size += len(chunk)
            sha.update(chunk)
            scan.feed(chunk, last=size >= info.st_size)
        if scan.found:
            raise Refused(source.path, "secret-found", ", ".join(sorted(scan.found)))
        if size > content.LARGE:
            self.remark("large-file", source.path, f"{size} bytes; no known weight format, so it ships", found=size)
        return FileEntry(source.path, size, sha.hexdigest(), "0444", self.kind.role(source.path), info.st_mtime_ns if self.mtimes else None)

    def read_all(self) -> list[FileEntry]:
        """Every candidate, in the order of their bytes; hashing leaves the interpreter lock, so threads help."""

        def one(path: str) -> FileEntry | Refused:
            try:
                return self.read(path)
            except Refused as refusal:
                return refusal

        files: list[FileEntry] = []
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for result in pool.map(one, sorted(self.candidates, key=os.fsencode)):
                if isinstance(result, Refused):
                    self.refused.append(result)
                else:
                    files.append(result)
        return files


def inventory(root: Path) -> dict[str, list[Any]]:
    """Every path below `root` as the driver's JobResult lists it: path -> [type, size, sha256 or link target]. Raises MachineError."""
    try:
        return {path: list(entry) for path, entry in walk(str(root)).items()}
    except InventoryError as error:
        raise MachineError(
            str(error), code="tree-unreadable", found=str(error), expected="a tree at rest", remedy="run as the owner of the tree"
        ) from error


def survey(
    root: Path, kind: Kind, *, secrets: Mapping[str, str] | None = None, weights: bool = False, mtimes: bool = False, exclude: Collection[str] = ()
) -> Survey:
    """List what ships of the tree at `root`, one kind's directory.

    `secrets`: name -> literal value (8 bytes or more) that must appear in no file. `weights`: allow them. `mtimes`: record modification times
    (nanoseconds), for kinds whose validity is an order of times. `exclude`: paths to leave out on request (`--allow-partial`).
    Raises ArtifactError that names every refused path, MachineError when the tree cannot be read.
    """
    literals = secrets or {}
    work = _Surveyor(root.resolve(), kind, literals, weights, mtimes, exclude)
    try:
        work.walk()
        files = work.read_all()
    except BakerError as error:
        raise type(error)(
            leaks.mask(error.message, literals),
            code=error.code,
            found=leaks.mask(error.found, literals),
            expected=error.expected,
            remedy=error.remedy,
        ) from error
    if work.refused:
        raise _refusal(kind.name, sorted(work.refused, key=lambda r: os.fsencode(r.path)), literals)
    findings = [*work.findings, *kind.problems(root, [f.path for f in files])]
    return Survey(
        kind.name,
        tuple(files),
        tuple(sorted(work.directories, key=os.fsencode)),
        tuple(sorted(work.dropped, key=lambda d: os.fsencode(d.path))),
        tuple(sorted(findings, key=lambda f: (f.code, f.message))),
    )


def _refusal(kind: str, refused: Sequence[Refused], literals: Mapping[str, str]) -> ArtifactError:
    lines = [leaks.mask(f"{shown(r.path)}: {r.why}", literals) for r in refused]
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ArtifactError(
        f"{kind}: {len(lines)} path(s) must not ship:\n  " + "\n  ".join(lines[:_SHOWN]) + more,
        code=refused[0].code,
        found=lines[0],
        expected="a tree of cache files only",
        remedy="remove the named paths, or point the program that wrote them elsewhere, then bake again",
        refused=[{"path": leaks.mask(shown(r.path), literals), "code": r.code, "why": leaks.mask(r.why, literals)} for r in refused],
    )
