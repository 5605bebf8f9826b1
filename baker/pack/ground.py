"""What a base image already has on the way to the root: found by one pass over its layers, as a runtime would stack them.

Directories that exist are not emitted again (that would reset their modes: case O-34). A link, a file or a declared VOLUME on the way is refused
(containers/base images with `/lib -> usr/lib`; case O-35), because what a layer puts there is lost or breaks the base.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baker.errors import ArtifactError
from baker.inside.finding import Finding
from baker.pack.image import ancestors
from baker.pack.reading import LayerReader, entry_name
from baker.pack.unpack import OWNED, LayerFile

_OPAQUE = ".wh..wh..opq"
_OTHERS_ENTER = 0o001
_LARGEST_PASSWD = 1 << 20  # bytes
_NO_UID = 2**32 - 1  # chown(2): "leave as it is"; the UIDs end below it
_REMEDY = "pass --root with a path that the base leaves alone, for example /opt/baker"


@dataclass(frozen=True, slots=True)
class Ground:
    """`existing`: directories on the way to the root that the base has. `user`: UID of the base's USER, 0 when it names none that can be resolved."""

    existing: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    user: int = 0


@dataclass
class _Pass:
    way: tuple[str, ...]
    found: dict[str, tarfile.TarInfo | None] = field(default_factory=dict)  # None: only implied by a deeper path
    inside: set[str] = field(default_factory=set)
    passwd: bytes = b""

    def layer(self, file: LayerFile) -> None:
        with LayerReader(file.path) as reader:
            for info in reader:
                name = entry_name(info)
                if name == "etc/passwd" and info.isreg() and info.size <= _LARGEST_PASSWD:
                    self.passwd = b"".join(reader.content(info))
                self.entry(name, info)
            identity = reader.finish()
        for what, got, want in (("digest", identity.digest, file.digest), ("diff ID", identity.diff_id, file.diff_id)):
            if want and got != want:
                raise ArtifactError(
                    f"layer {file.path.name} of the base: {what} differs", code="layer-damaged", found=got, expected=want, remedy="get the base again"
                )

    def entry(self, name: str, info: tarfile.TarInfo) -> None:
        directory, _, last = name.rpartition("/")
        if last.startswith(".wh."):
            self.delete(directory if last == _OPAQUE else f"{directory}/{last[4:]}".lstrip("/"), below_only=last == _OPAQUE)
            return
        for path in self.way:
            if name.startswith(path + "/"):
                self.found.setdefault(path, None)
        if name in self.way:
            if not info.isdir():
                self.delete(name, below_only=True)
            self.found[name] = info
        if name.startswith(self.way[-1] + "/"):
            self.inside.add(name[len(self.way[-1]) + 1 :].split("/", 1)[0])

    def delete(self, name: str, *, below_only: bool) -> None:
        gone = [p for p in self.found if p.startswith(name + "/") or name == "" or (p == name and not below_only)]
        for path in gone:
            del self.found[path]
        root = self.way[-1]
        if root == name or root.startswith(name + "/") or name == "":
            self.inside.clear()
        elif name.startswith(root + "/") and not below_only:
            self.inside.discard(name[len(root) + 1 :])


def survey_base(config: Mapping[str, Any], layers: Sequence[LayerFile], root: str) -> Ground:
    """Look at a base (its config, and its layers lowest first; given digests are checked) for building at `root`.

    Raises ArtifactError for a link, file or VOLUME on the way, for a root that already holds baker's names, and for a damaged layer.
    """
    work = _Pass(ancestors(root))
    inner = config.get("config") or {}
    _refuse_volumes(inner.get("Volumes") or {}, root)
    for layer in layers:
        work.layer(layer)
    findings = [finding for path in work.way if path in work.found for finding in _look(path, work.found[path])]
    held = sorted(work.inside.intersection(OWNED))
    if held:
        raise ArtifactError(
            f"the base already holds {root}/{held[0]}: it is an image that baker made, or another program's",
            code="base-occupied",
            found=", ".join(held),
            expected=f"nothing of baker's below {root}",
            remedy="pass the base that the image was made from, or another --root",
        )
    return Ground(frozenset(work.found), tuple(findings), _user(str(inner.get("User") or ""), work.passwd))


def _look(path: str, info: tarfile.TarInfo | None) -> list[Finding]:
    if info is None:
        return []
    if info.issym() or info.islnk():
        raise ArtifactError(
            f"/{path} is a link in the base, to {info.linkname}",
            code="base-link",
            found=f"link to {info.linkname}",
            expected="a directory",
            remedy=_REMEDY,
        )
    if not info.isdir():
        raise ArtifactError(f"/{path} is no directory in the base", code="base-file", found="a file", expected="a directory", remedy=_REMEDY)
    if info.mode & _OTHERS_ENTER:
        return []
    mode = f"{info.mode & 0o7777:04o}"
    return [
        Finding(
            "base-mode",
            "soft",
            "",
            f"/{path} cannot be entered by other users",
            mode,
            "o+x",
            f"a server that is not UID {info.uid} will not reach its caches: {_REMEDY}",
        )
    ]


def _refuse_volumes(volumes: Mapping[str, Any], root: str) -> None:
    for volume in volumes:
        path = "/" + str(volume).strip("/")
        covers = path == "/" or root == path or root.startswith(path + "/")
        within = path.startswith(root + "/") and not path.startswith(f"{root}/live")
        if covers or within:
            raise ArtifactError(
                f"the base declares the volume {volume}, which hides {root} at run time",
                code="base-volume",
                found=str(volume),
                expected=f"no volume over {root}",
                remedy=_REMEDY,
            )


def _user(user: str, passwd: bytes) -> int:
    name = user.partition(":")[0]
    if name.isascii() and name.isdigit():
        return int(name) if int(name) < _NO_UID else 0
    for line in passwd.decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[0] == name and fields[2].isascii() and fields[2].isdigit():
            return int(fields[2])
    return 0
