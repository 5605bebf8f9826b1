"""Reading layers that nobody vouches for: decompress, hash both sides, and hand out tar entries; every defect is an ArtifactError."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import zstandard
from isal import igzip, isal_zlib

from baker.errors import ArtifactError, MachineError
from baker.pack.source import CHUNK

_DEFECTS: tuple[type[Exception], ...] = (
    tarfile.TarError,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    cast(type[Exception], isal_zlib.IsalError),
    zstandard.ZstdError,
    ValueError,
    OverflowError,
    RecursionError,
)
_BUFFER = 32768  # bytes; tarfile copies what is left of its buffer at every read, so a large one costs seconds


class _Counted(io.RawIOBase):
    """A readable stream that hashes and counts what passes."""

    def __init__(self, inner: BinaryIO) -> None:
        super().__init__()
        self.inner, self.sha, self.count = inner, hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self.inner.read(size)
        self.sha.update(data)
        self.count += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a layer turned out to be: digest and size of the stored bytes, diff ID and size of the tar."""

    digest: str
    size: int
    diff_id: str
    unpacked: int


def _decoder(raw: _Counted, magic: bytes) -> BinaryIO:
    if magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, igzip.IGzipFile(fileobj=raw))  # type: ignore[no-untyped-call]
    if magic == b"\x28\xb5\x2f\xfd":
        return cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, raw), read_across_frames=True))
    return cast(BinaryIO, raw)


class LayerReader:
    """Iterate the entries of a layer file; `content` must be read before the next entry. `finish` reads the rest and tells the identity."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            raise ArtifactError(
                f"layer {path.name}: the blob is missing", code="blob-missing", found="no file", expected=str(path), remedy="build the image again"
            ) from None
        except OSError as error:
            raise MachineError(f"layer {path.name}: cannot be opened", code="not-readable", found=str(error), remedy="run as its owner") from error
        magic = self._file.read(4)
        self._file.seek(0)
        self._raw = _Counted(self._file)
        self._plain = _Counted(_decoder(self._raw, magic))
        self._buffered = io.BufferedReader(self._plain, CHUNK)

    def __enter__(self) -> LayerReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not isinstance(error, gzip.BadGzipFile):
                raise MachineError(f"layer {self.path.name}: cannot be read", code="not-readable", found=str(error)) from error
            raise self._damaged(error) from error
        except _DEFECTS as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ArtifactError:
        return ArtifactError(
            f"layer {self.path.name}: not a whole tar archive: {error}",
            code="layer-damaged",
            found=str(error),
            expected="a compressed tar",
            remedy=f"remove {self.path} and build or copy the image again",
        )

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        with self._guard():
            # fileobj in stream mode: nothing is sought, so memory stays flat.
            tar = tarfile.open(fileobj=self._buffered, mode="r|", bufsize=_BUFFER, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        self._tar = tar
        while True:
            with self._guard():
                info = tar.next()
            if info is None:
                return
            tar.members = []  # type: ignore[attr-defined]  # else every entry of the archive stays in memory
            yield info

    def content(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        """The bytes of a regular file, in pieces. Raises ArtifactError when the archive ends before the file does."""
        with self._guard():
            handle = self._tar.extractfile(info)
        left = info.size
        while handle is not None and left:
            with self._guard():
                data = handle.read(min(left, CHUNK))
                if not data:
                    raise EOFError(f"archive ends within {info.name!r}")
            left -= len(data)
            yield data

    def finish(self) -> Identity:
        """Read to the end of both streams."""
        with self._guard():
            while self._plain.read(CHUNK):
                pass
            while self._raw.read(CHUNK):
                pass
        return Identity("sha256:" + self._raw.sha.hexdigest(), self._raw.count, "sha256:" + self._plain.sha.hexdigest(), self._plain.count)


def entry_name(info: tarfile.TarInfo) -> str:
    """Normalised path of an entry without leading "./" or "/". Raises ArtifactError for one that climbs out."""
    parts = [part for part in info.name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArtifactError(f"layer entry {info.name!r} climbs out of the image", code="entry-unsafe", found=info.name, expected="no '..'")
    return "/".join(parts)


def mtime_ns(info: tarfile.TarInfo) -> int:
    """Modification time in nanoseconds, exact: tarfile itself keeps PAX times as floats."""
    text = info.pax_headers.get("mtime")
    if text is None:
        return int(info.mtime) * 10**9
    whole, _, fraction = text.partition(".")
    sign = -1 if whole.startswith("-") else 1
    return sign * (abs(int(whole or "0")) * 10**9 + int((fraction + "0" * 9)[:9]))


def file_digest(path: Path) -> tuple[str, int]:
    """Digest and size in bytes of a blob file."""
    sha, size = hashlib.sha256(), 0
    with path.open("rb") as handle:
        while data := handle.read(CHUNK):
            sha.update(data)
            size += len(data)
    return "sha256:" + sha.hexdigest(), size
