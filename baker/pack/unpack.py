"""Unpack baker's layers at a root, as a container runtime would: exact modes, owners where permitted, deletions honoured, nothing outside.

Below the root baker owns the names in OWNED and no other; they are removed first, so that nothing of an earlier install survives. A failure at any
point removes what was unpacked, so that half an image is never taken for a whole one.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.errors import ArtifactError
from baker.pack import oci
from baker.pack.reading import LayerReader, entry_name, mtime_ns
from baker.pack.source import shown
from baker.pack.space import room

OWNED = ("start", "bin", "sets", "live", "manifest.json")
_HEX = re.compile(r"[0-9a-f]{64}")
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A layer on disk with what it must turn out to be; "" is not checked."""

    path: Path
    digest: str = ""
    diff_id: str = ""


def own_layers(manifest: Mapping[str, Any], config: Mapping[str, Any], blobs: Path) -> tuple[LayerFile, ...]:
    """Baker's own layers of an image, lowest first, with both identities; those of the base are left out. `blobs` holds `<hex digest>` files.

    Raises ArtifactError for a descriptor whose digest is none: it could name any path.
    """
    diff_ids = list((config.get("rootfs") or {}).get("diff_ids") or [])
    found = []
    for number, layer in enumerate(manifest.get("layers") or []):
        if oci.KIND not in (layer.get("annotations") or {}):
            continue
        name = str(layer.get("digest")).removeprefix("sha256:")
        if not _HEX.fullmatch(name):
            raise ArtifactError(
                f"not a digest: {name!r}", code="bad-digest", found=name, expected="sha256:<64 hex digits>", remedy="build the image again"
            )
        found.append(LayerFile(blobs / name, f"sha256:{name}", str(diff_ids[number]) if number < len(diff_ids) else ""))
    return tuple(found)


def remove(path: Path) -> None:
    """Remove a file, link or tree, read-only directories included; links are never followed, a mount point is emptied and stays."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink()
        return
    for _, _, _, fd in os.fwalk(path, topdown=True):
        os.fchmod(fd, 0o700)  # pristine directories are 0555
    if path.is_mount():
        for child in path.iterdir():
            remove(child)
        return
    shutil.rmtree(path)


def clear(root: Path) -> None:
    """Remove what baker owns below the root, `live` included, and nothing else."""
    for name in OWNED:
        remove(root / name)


def unpack(layers: Sequence[Path | LayerFile], root: Path | str, *, prefix: str = "") -> None:
    """Unpack `layers`, lowest first, below `root`; `prefix` is the root's path in the image (default: the root's own path).

    Digests are checked while unpacking: those given, and for a file whose name is 64 hex digits that name. Raises ArtifactError for a damaged layer,
    a link or special file (baker makes none) or an entry outside of the root; MachineError on a full disk or without permission.
    """
    root = Path(root)
    files = [layer if isinstance(layer, LayerFile) else LayerFile(layer) for layer in layers]
    size = sum(f.path.stat().st_size for f in files if f.path.exists())
    with room(root, 8 * size, f"the image at {root}"):
        root.mkdir(parents=True, exist_ok=True)
        clear(root)
        try:
            work = _Unpacker(root, (prefix or str(root)).strip("/"))
            for file in files:
                work.layer(file)
            work.settle_directories()
        except BaseException:
            clear(root)
            raise


class _Unpacker:
    """Directories get their modes when all layers are done, deepest first: pristine ones are read-only, which would stop an ordinary user."""

    def __init__(self, root: Path, inside: str) -> None:
        self.root, self.inside = root, inside
        self.name = ""  # of the layer at hand
        self.directories: dict[str, tarfile.TarInfo] = {}
        self.written: set[str] = set()  # by the layer at hand

    def layer(self, file: LayerFile) -> None:
        self.name, self.written = file.path.name, set()
        with LayerReader(file.path) as reader:
            for info in reader:
                if path := self.below(info):
                    self.entry(reader, info, path)
            found = reader.finish()
        expected = file.digest or (f"sha256:{self.name}" if _HEX.fullmatch(self.name) else "")
        for what, got, want in (("digest", found.digest, expected), ("diff ID", found.diff_id, file.diff_id)):
            if want and got != want:
                raise ArtifactError(
                    f"layer {self.name}: {what} differs",
                    code="layer-damaged",
                    found=got,
                    expected=want,
                    remedy=f"remove {file.path} and build or copy the image again",
                )

    def below(self, info: tarfile.TarInfo) -> str:
        """The entry's path below the root; "" for the root itself and directories on the way to it, which stay as they are."""
        name = entry_name(info)
        if name.startswith(self.inside + "/"):
            path = name[len(self.inside) + 1 :]
            first = path.split("/", 1)[0].removeprefix(".wh.")
            if first not in OWNED and path != _OPAQUE:
                raise self.unsafe(info, f"baker owns only {', '.join(OWNED)} there")
            return path
        if info.isdir() and (name == self.inside or self.inside.startswith(name + "/" if name else "")):
            return ""
        raise self.unsafe(info, f"outside of /{self.inside}")

    def unsafe(self, info: tarfile.TarInfo, why: str) -> ArtifactError:
        return ArtifactError(
            f"layer {self.name}: entry {info.name!r}: {why}",
            code="entry-unsafe",
            found=shown(info.name),
            expected=f"files and directories below /{self.inside}",
            remedy="this layer was not made by baker, or was altered: do not use it",
        )

    def entry(self, reader: LayerReader, info: tarfile.TarInfo, path: str) -> None:
        target = self.root / path
        self.make_parents(target.parent, info)
        if target.name.startswith(".wh."):
            self.whiteout(target, path, info)
        elif info.isdir():
            if not target.is_dir():
                remove(target)
                target.mkdir(0o755)
            self.directories[path] = info
        elif info.isreg():
            remove(target)
            self.written.add(path)
            self.make_file(reader, target, info)
        else:
            raise self.unsafe(info, "neither file nor directory: baker makes nothing else")

    def make_parents(self, parent: Path, info: tarfile.TarInfo) -> None:
        try:
            parent.mkdir(0o755, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise self.unsafe(info, "lies below a file") from None

    def whiteout(self, target: Path, path: str, info: tarfile.TarInfo) -> None:
        """Delete what lower layers put there; an opaque mark empties its directory but for what this layer wrote."""
        if target.name != _OPAQUE:
            hidden = target.name.removeprefix(".wh.")
            if hidden in ("", ".", ".."):
                raise self.unsafe(info, "a deletion that names nothing")
            remove(target.parent / hidden)
            return
        here = path.rpartition("/")[0]
        for child in list(target.parent.iterdir()):
            name = f"{here}/{child.name}" if here else child.name
            owned = "/" in name or name in OWNED
            if owned and not any(w == name or w.startswith(name + "/") for w in self.written):
                remove(child)

    def make_file(self, reader: LayerReader, target: Path, info: tarfile.TarInfo) -> None:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb", buffering=0) as handle:
            for data in reader.content(info):
                handle.write(data)
        settle(target, info)

    def settle_directories(self) -> None:
        for path in sorted(self.directories, key=os.fsencode, reverse=True):
            if (self.root / path).is_dir():  # not when a later layer deleted it
                settle(self.root / path, self.directories[path])


def settle(target: Path, info: tarfile.TarInfo) -> None:
    """Owner (where permitted: root), mode and time as the entry says."""
    if os.geteuid() == 0:
        os.chown(target, info.uid, info.gid, follow_symlinks=False)
    target.chmod(stat.S_IMODE(info.mode))
    when = mtime_ns(info)
    os.utime(target, ns=(when, when))
