"""An OCI image layout on disk (OCI image specification, image-layout.md): blobs first, index.json last, each by temporary file and rename.

So a kill or a full disk at any point leaves the old state valid. Writers exclude one another by a lock on the directory itself; readers need none.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baker.errors import ArtifactError, MachineError, UsageError
from baker.inside.manifest import digest as digest_of
from baker.pack import atomic, oci
from baker.pack.reading import file_digest
from baker.pack.space import room

_MARKER = b'{"imageLayoutVersion":"1.0.0"}'
_NAMES = {"oci-layout", "index.json", "blobs"}
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_LARGEST_DOCUMENT = 16 << 20  # bytes of an index, manifest or config; registries cap manifests at 4 MiB

Document = dict[str, Any]


class Layout:
    """A layout at `path`. Reading checks every document against its digest; writing needs `locked()`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blobs = path / "blobs" / "sha256"

    @classmethod
    def open(cls, path: Path) -> Layout:
        """An existing layout. Raises ArtifactError when `path` is none."""
        layout = cls(path)
        layout.index()
        return layout

    @classmethod
    def create(cls, path: Path) -> Layout:
        """An existing layout, or a new one in an absent or empty directory. Raises UsageError for a directory with other content."""
        layout = cls(path)
        with room(path, len(_MARKER), f"the layout {path}"):
            path.mkdir(parents=True, exist_ok=True)
            cls.refuse_foreign(path)
            with layout.locked():
                layout.blobs.mkdir(parents=True, exist_ok=True)
                if not (path / "oci-layout").exists():
                    atomic.write(path / "oci-layout", _MARKER)
        return layout

    @staticmethod
    def refuse_foreign(path: Path) -> None:
        """Raise UsageError for a file, or a directory with content that is no layout; an absent one is fine."""
        found = ""
        if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
            foreign = sorted(p.name for p in path.iterdir() if p.name not in _NAMES and not p.name.startswith(atomic.PREFIX))
            found = "" if (path / "oci-layout").is_file() else ", ".join(foreign[:5])
        elif os.path.lexists(path):
            found = "a broken link" if path.is_symlink() else "a file"
        if found:
            raise UsageError(
                f"{path} is no OCI image layout",
                code="not-a-layout",
                found=found,
                expected="an OCI image layout, or an empty or absent directory",
                remedy="name another directory",
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other writers, waiting for them; leftovers of killed ones are removed. The lock falls with the process."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            for directory in (self.path, self.blobs):
                if directory.is_dir():
                    atomic.sweep(directory)
            yield
        finally:
            os.close(fd)

    def blob(self, digest: object) -> Path:
        """Where a blob lies. Raises ArtifactError for anything but a sha256 digest (which could otherwise name any path)."""
        match = _DIGEST.fullmatch(str(digest))
        if match is None:
            raise ArtifactError(f"{self.path}: not a digest: {digest!r}", code="bad-digest", found=str(digest), expected="sha256:<64 hex digits>")
        return self.blobs / match.group(1)

    def read(self, descriptor: Mapping[str, Any]) -> bytes:
        """A document's bytes, checked. Raises ArtifactError that names the blob, found and expected digest."""
        path = self.blob(descriptor.get("digest"))
        data = self._read(path)
        self._compare(path, digest_of(data), len(data), descriptor)
        return data

    def _read(self, path: Path) -> bytes:
        try:
            with path.open("rb") as handle:
                data = handle.read(_LARGEST_DOCUMENT + 1)
        except FileNotFoundError:
            raise ArtifactError(
                f"{self.path}: {path.name} is missing",
                code="blob-missing",
                found="no file",
                expected=str(path),
                remedy="build or copy the image again",
            ) from None
        except OSError as error:
            raise MachineError(f"{path}: cannot be read", code="not-readable", found=str(error), expected="a readable file") from error
        if len(data) > _LARGEST_DOCUMENT:
            raise ArtifactError(f"{path}: too large for a document", code="blob-damaged", found=f"> {_LARGEST_DOCUMENT} bytes")
        return data

    def _compare(self, path: Path, digest: str, size: int, descriptor: Mapping[str, Any]) -> None:
        if digest != descriptor.get("digest") or size != descriptor.get("size", size):
            raise ArtifactError(
                f"{self.path}: blob {path.name} is damaged",
                code="blob-damaged",
                found=f"{digest}, {size} bytes",
                expected=f"{descriptor.get('digest')}, {descriptor.get('size')} bytes",
                remedy=f"remove {path} and build or copy the image again",
            )

    def document(self, descriptor: Mapping[str, Any]) -> Document:
        """A checked JSON document."""
        return self._parse(self.read(descriptor), str(descriptor.get("digest")))

    def _parse(self, data: bytes, name: str) -> Document:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{self.path}: {name} is not JSON", code="blob-damaged", found=str(error), expected="JSON") from None
        if not isinstance(document, dict):
            raise ArtifactError(f"{self.path}: {name} is no object", code="blob-damaged", found=type(document).__name__, expected="a JSON object")
        return document

    def index(self) -> Document:
        """index.json. Raises ArtifactError when there is none: then this is no layout, or its first build never ended."""
        path = self.path / "index.json"
        if not (os.path.isfile(path) and os.path.isfile(self.path / "oci-layout")):  # noqa: PTH113 - Path.is_file raises for a name that is too long
            raise ArtifactError(
                f"{self.path} is no OCI image layout",
                code="not-a-layout",
                found="no index.json" if os.path.lexists(self.path) else "no such directory",
                expected="a directory with oci-layout, index.json and blobs",
                remedy="check the path; a build that was killed leaves no index: run it again",
            )
        index = self._parse(self._read(path), "index.json")
        entries = index.get("manifests")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ArtifactError(f"{self.path}: index.json lists no manifests", code="blob-damaged", expected="a list of descriptors")
        return index

    def entries(self) -> list[Document]:
        """The descriptors of index.json; [] for a layout that is still being made."""
        return list(self.index()["manifests"]) if (self.path / "index.json").exists() else []

    def put(self, data: bytes) -> None:
        """Store a document under its digest."""
        target = self.blob(digest_of(data))
        with room(self.path, len(data), f"blob {target.name}"):
            atomic.write(target, data)

    def adopt(self, source: Path, descriptor: Mapping[str, Any], *, check: bool) -> None:
        """Take a blob file in, by hard link where the file system allows, else by copy; `check`: hash it first (blobs of others)."""
        target = self.blob(descriptor.get("digest"))
        if target.exists() and source.exists() and target.samefile(source):
            return
        if not source.is_file():
            raise ArtifactError(
                f"layer {target.name} is missing", code="blob-missing", found="no file", expected=str(source), remedy="get the image again"
            )
        size = source.stat().st_size
        if check:
            self._compare(source, *file_digest(source), descriptor)
        with room(self.path, size, f"blob {target.name}"):
            if not _link(source, target):
                with atomic.partial(self.blobs) as (handle, path), source.open("rb") as content:
                    shutil.copyfileobj(content, handle, 1 << 20)
                    atomic.commit(handle, path, target)

    def tag(self, descriptor: Mapping[str, Any], tag: str) -> None:
        """Point `tag` at an image; every other entry stays as it is."""
        entry = {**descriptor, "annotations": {**descriptor.get("annotations", {}), oci.REF_NAME: tag}}
        others = [e for e in self.entries() if tag_of(e) != tag]
        self._write_index([*others, entry])

    def publish(self, descriptor: Mapping[str, Any], tags: Sequence[str], referrers: Sequence[Mapping[str, Any]]) -> None:
        """Point several tags at an image and list its referrers, in one write of the index: a kill leaves all of it or none."""
        listed = {(entry.get("digest"), tag_of(entry)) for entry in self.entries()}
        others = [entry for entry in self.entries() if tag_of(entry) not in tags]
        named = [{**descriptor, "annotations": {**descriptor.get("annotations", {}), oci.REF_NAME: tag}} for tag in tags]
        self._write_index([*others, *named, *(dict(entry) for entry in referrers if (entry["digest"], "") not in listed)])

    def add(self, descriptor: Mapping[str, Any]) -> None:
        """List an untagged manifest (a referrer), once."""
        entries = self.entries()
        if not any(e.get("digest") == descriptor["digest"] and not tag_of(e) for e in entries):
            self._write_index([*entries, dict(descriptor)])

    def _write_index(self, entries: Sequence[Mapping[str, Any]]) -> None:
        data = oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": list(entries)})
        with room(self.path, len(data), "index.json"):
            atomic.write(self.path / "index.json", data)


def _link(source: Path, target: Path) -> bool:
    """Hard-link a blob into place; False where that cannot be (another file system, links not permitted)."""
    path = target.with_name(f"{atomic.PREFIX}{secrets.token_hex(8)}")
    try:
        path.hardlink_to(source)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    path.rename(target)
    atomic.sync_directory(target.parent)
    return True


def tag_of(entry: Mapping[str, Any]) -> str:
    """The tag of an index entry, "" for none."""
    annotations = entry.get("annotations")
    return str(annotations.get(oci.REF_NAME, "")) if isinstance(annotations, dict) else ""
