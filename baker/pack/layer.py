"""Members in, one compressed layer file out: streamed, bounded in memory, and the same bytes for the same members wherever they lay.

Fixed for reproducibility (cases O-30, O-31): order by the bytes of the path, owner 0:0 without names, modes by the caller, time `created` except
where a member brings its own. The hash of each file is checked while it is packed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from baker.errors import ArtifactError
from baker.inside.manifest import FileEntry
from baker.pack import atomic, compress, tarhead
from baker.pack.source import CHUNK, Changed, Source, changed, shown
from baker.pack.space import room
from baker.spec import DiffId, Digest

_PATH_MAX = 4096  # Linux, including the terminating zero: a longer name could not be unpacked
_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class Layer:
    """One packed layer on disk, with both identities; `kind` names it in reports and annotations."""

    kind: str
    digest: Digest
    diff_id: DiffId
    size: int  # compressed bytes
    unpacked: int  # bytes of file content
    files: int
    media_type: str
    path: Path
    set_name: str = ""  # the set of a kind's layer; "" for start and manifest
    part: str = ""  # "debug" for the layer of a kind's files that only people read


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a layer. `name` is the path in the image without leading slash; a directory has no content."""

    name: str
    mode: int
    content: Source | bytes | None = None
    size: int = 0
    sha256: str = ""
    mtime_ns: int | None = None
    uid: int = 0


def directory(name: str, mode: int = 0o555, uid: int = 0) -> Member:
    """A directory entry."""
    return Member(name, mode, uid=uid)


def blob(name: str, data: bytes, mode: int = 0o444) -> Member:
    """A file whose content is at hand."""
    return Member(name, mode, data, len(data), hashlib.sha256(data).hexdigest())


def tree_members(source: Path, prefix: str, files: Sequence[FileEntry]) -> list[Member]:
    """The surveyed `files` of the tree at `source`, placed below `prefix` (image path without leading slash), with their directories (0555)."""
    directories = {parent for entry in files for parent in _parents(entry.path)}
    members = [directory(f"{prefix}/{path}") for path in directories]
    source = source.resolve()
    for entry in files:
        mode = int(entry.mode, 8)
        members.append(Member(f"{prefix}/{entry.path}", mode, Source(source, entry.path), entry.size, entry.sha256, entry.mtime_ns))
    return members


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path


def _raw(name: str) -> bytes:
    """The name as stored. Raises ArtifactError, with the name escaped, for one that a tar or a Linux file system cannot hold."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        raise _unstorable(name, "it has no byte form") from None
    parts = raw.split(b"/")
    if not raw or b"\0" in raw or any(part in (b"", b".", b"..") for part in parts):
        raise _unstorable(name, "it is not a normalised relative path")
    if len(raw) + 1 >= _PATH_MAX or any(len(part) > _NAME_MAX for part in parts):
        raise _unstorable(name, f"{len(raw)} bytes, longest component {max(map(len, parts))}")
    return raw


def _unstorable(name: str, why: str) -> ArtifactError:
    return ArtifactError(
        f"{shown(name)}: this name cannot be stored in a layer: {why}",
        code="name-unstorable",
        found=shown(name),
        expected=f"a path below {_PATH_MAX} bytes, components up to {_NAME_MAX}",
        remedy="choose a shorter --root, or have the program that wrote the file choose another name",
    )


class _Sink:
    """Takes tar bytes; hashes them, compresses them in blocks of fixed length (so that the result does not depend on the writes), hashes that."""

    def __init__(self, handle: BinaryIO, encoder: compress.Encoder) -> None:
        self.handle, self.encoder = handle, encoder
        self.plain, self.packed = hashlib.sha256(), hashlib.sha256()
        self.size = 0
        self.buffer = bytearray()

    def write(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= CHUNK:
            block = bytes(memoryview(self.buffer)[:CHUNK])
            del self.buffer[:CHUNK]
            self.plain.update(block)
            self._out(self.encoder.compress(block))

    def _out(self, data: bytes) -> None:
        self.packed.update(data)
        self.size += len(data)
        self.handle.write(data)

    def finish(self) -> None:
        self.plain.update(self.buffer)
        self._out(self.encoder.compress(bytes(self.buffer)))
        self._out(self.encoder.flush())


def _ordered(members: Iterable[Member]) -> list[tuple[bytes, Member]]:
    found: dict[bytes, Member] = {}
    for member in members:
        raw = _raw(member.name)
        if raw in found and found[raw] != member:
            raise ArtifactError(f"{shown(member.name)}: stands twice in one layer", code="duplicate-entry", expected="each path once")
        found[raw] = member
    for raw in found:
        parent = found.get(raw.rpartition(b"/")[0])
        if parent is not None and parent.content is not None:
            raise ArtifactError(f"{shown(parent.name)}: is a file and a directory in one layer", code="duplicate-entry", expected="each path once")
    return sorted(found.items())


def _content(member: Member) -> Iterator[bytes]:
    if isinstance(member.content, bytes):
        yield member.content
    elif member.content is not None:
        try:
            yield from member.content.chunks()
        except Changed:
            raise changed(member.name, "while it was packed") from None


def _put(sink: _Sink, raw: bytes, member: Member, created_ns: int) -> None:
    mtime = created_ns if member.mtime_ns is None else member.mtime_ns
    is_directory = member.content is None
    sink.write(tarhead.header(raw, directory=is_directory, mode=member.mode, size=member.size, mtime_ns=mtime, uid=member.uid))
    if is_directory:
        return
    sha, count = hashlib.sha256(), 0
    for chunk in _content(member):
        sha.update(chunk)
        count += len(chunk)
        if count > member.size:
            break
        sink.write(chunk)
    if count != member.size or sha.hexdigest() != member.sha256:
        raise changed(member.name, "its content is not what was surveyed")
    sink.write(tarhead.padding(member.size))


def _bound(members: Sequence[tuple[bytes, Member]]) -> int:
    """Most bytes that the layer can take: blocks, PAX records, and what a compressor adds to data that does not shrink."""
    plain = sum(4 * tarhead.BLOCK + len(raw) + member.size for raw, member in members)
    return plain + plain // 1000 + CHUNK


def write_layer(kind: str, members: Iterable[Member], out: Path, *, created: int, compression: str = "gzip") -> Layer:
    """Write one layer as `<out>/<hex digest>`; `created` is seconds since the epoch.

    Raises ArtifactError for a name that cannot be stored, a path that stands twice or a file that changed since its survey; MachineError on a full
    disk (with needed and free bytes). Nothing partial stays behind.
    """
    form, ordered = compress.by_name(compression), _ordered(members)
    with room(out, _bound(ordered), f"layer {kind}"):
        out.mkdir(parents=True, exist_ok=True)
        atomic.sweep(out)
        with atomic.partial(out) as (handle, path):
            sink = _Sink(handle, form.encoder())
            for raw, member in ordered:
                _put(sink, raw, member, created * 10**9)
            sink.write(tarhead.END)
            sink.finish()
            target = out / sink.packed.hexdigest()
            atomic.commit(handle, path, target)
    content = [member for _, member in ordered if member.content is not None]
    return Layer(
        kind,
        Digest("sha256:" + sink.packed.hexdigest()),
        DiffId("sha256:" + sink.plain.hexdigest()),
        sink.size,
        sum(member.size for member in content),
        len(content),
        form.media_type,
        target,
    )
