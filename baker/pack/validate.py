"""Recompute what an image in a layout claims of itself: digests, sizes, diff IDs, the config's layer order, history, and our layers' entries.

`validate` returns findings, all of them, and raises nothing for a damaged image: `baker inspect` prints them, tests assert that there are none.
"""

from __future__ import annotations

import hashlib
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from baker.errors import BakerError
from baker.inside.finding import Finding
from baker.inside.manifest import Manifest, ManifestError, digest, parse
from baker.pack import oci, shape
from baker.pack.image import DIGEST_VARIABLE, LABEL_ROOT
from baker.pack.layout import Layout
from baker.pack.reading import LayerReader, entry_name
from baker.pack.source import shown

_LARGEST_MANIFEST = 512 << 20  # bytes of manifest.json that are read; 20,000 files take about 4 MB


def _hard(code: str, message: str, found: Any = None, expected: Any = None, kind: str = "") -> Finding:
    return Finding(code, "hard", kind, message, found, expected, "do not use this image; build or copy it again")


def validate(path: Path, manifest_descriptor: Mapping[str, Any]) -> list[Finding]:
    """Check the image that `manifest_descriptor` names in the layout at `path`; [] when everything is as it claims."""
    return list(_Validator(Layout(path)).image(manifest_descriptor))


class _Validator:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.files: dict[str, tuple[int, str]] = {}  # image path -> size, sha256, over our layers
        self.manifest_data = b""
        self.root = ""

    def image(self, descriptor: Mapping[str, Any]) -> Iterator[Finding]:
        try:
            manifest = shape.require(self.layout.document(descriptor), shape.MANIFEST, "the manifest")
            config = shape.require(self.layout.document(manifest["config"]), shape.CONFIG, "the config")
        except BakerError as error:
            yield _hard(error.code, error.message, error.found, error.expected)
            return
        layers = [layer for layer in manifest.get("layers") or [] if isinstance(layer, dict)]
        diff_ids = list((config.get("rootfs") or {}).get("diff_ids") or [])
        yield from self.shape(config, layers, diff_ids)
        self.root = str(((config.get("config") or {}).get("Labels") or {}).get(LABEL_ROOT, "")).strip("/")
        for number, layer in enumerate(layers):
            yield from self.layer(layer, diff_ids[number] if number < len(diff_ids) else "")
        if self.root:
            yield from self.content(config)

    def shape(self, config: Mapping[str, Any], layers: list[dict[str, Any]], diff_ids: list[Any]) -> Iterator[Finding]:
        """Counts that must agree, and the fields that every reader needs."""
        if len(diff_ids) != len(layers):
            yield _hard("layer-count", "config and manifest differ in the number of layers", len(diff_ids), len(layers))
        history = config.get("history")
        if isinstance(history, list):
            filled = sum(1 for h in history if isinstance(h, dict) and not h.get("empty_layer"))
            if filled != len(layers):
                yield _hard("history-count", "the history does not match the layers", filled, len(layers))
        for key in ("architecture", "os"):
            if not config.get(key):
                yield _hard("config-incomplete", f"the config has no {key}", config.get(key), "a name")

    def layer(self, descriptor: Mapping[str, Any], diff_id: object) -> Iterator[Finding]:
        kind = str((descriptor.get("annotations") or {}).get(oci.KIND, ""))
        name = kind or "base"
        try:
            with LayerReader(self.layout.blob(descriptor.get("digest"))) as reader:
                if kind:
                    yield from self.entries(reader, kind)
                else:
                    for _ in reader:
                        pass
                found = reader.finish()
        except BakerError as error:
            yield _hard(error.code, f"{name}: {error.message}", error.found, error.expected, kind)
            return
        for code, what, got, want in (
            ("digest-differs", "digest", found.digest, descriptor.get("digest")),
            ("size-differs", "size", found.size, descriptor.get("size")),
            ("diff-id-differs", "diff ID", found.diff_id, diff_id),
        ):
            if got != want:
                yield _hard(code, f"{name}: {what} differs", got, want, kind)

    def entries(self, reader: LayerReader, kind: str) -> Iterator[Finding]:
        """Our own layers: safe names, sorted, each once, fixed owner and modes; hashes are kept for `content`."""
        last = b""
        for info in reader:
            raw = info.name.encode("utf-8", "surrogateescape")
            for problem in _problems(info, raw <= last, self.root):
                yield _hard("entry-unsafe", f"{shown(info.name)}: {problem}", kind=kind)
            last = raw
            if info.isreg():
                sha, kept = hashlib.sha256(), []
                is_manifest = bool(self.root) and entry_name(info) == f"{self.root}/manifest.json" and info.size <= _LARGEST_MANIFEST
                for data in reader.content(info):
                    sha.update(data)
                    if is_manifest:
                        kept.append(data)
                self.files[entry_name(info)] = (info.size, sha.hexdigest())
                if is_manifest:
                    self.manifest_data = b"".join(kept)

    def content(self, config: Mapping[str, Any]) -> Iterator[Finding]:
        """The manifest inside is the one that ENV names, and lists exactly the files of the sets."""
        env = dict(str(entry).partition("=")[::2] for entry in (config.get("config") or {}).get("Env") or [])
        if not self.manifest_data:
            yield _hard("manifest-missing", f"no layer holds /{self.root}/manifest.json")
            return
        if digest(self.manifest_data) != env.get(DIGEST_VARIABLE):
            yield _hard("manifest-digest", "manifest.json is not the one that the image names", digest(self.manifest_data), env.get(DIGEST_VARIABLE))
        try:
            manifest = parse(self.manifest_data)
        except ManifestError as error:
            yield _hard("manifest-damaged", str(error))
            return
        yield from self.compare(manifest)

    def compare(self, manifest: Manifest) -> Iterator[Finding]:
        listed: dict[str, tuple[int, str]] = {}
        kinds: dict[str, str] = {}
        for one in manifest.sets:
            for kind in one.kinds:
                for file in kind.files:
                    path = f"{self.root}/sets/{one.name}/{kind.name}/{file.path}"
                    listed[path], kinds[path] = (file.size, file.sha256), kind.name
        present = {path: value for path, value in self.files.items() if path.startswith(f"{self.root}/sets/")}
        for path in sorted(listed.keys() | present.keys()):
            if path not in present:
                yield _hard("file-missing", f"{shown(path)}: in the manifest, in no layer", kind=kinds[path])
            elif path not in listed:
                yield _hard("file-extra", f"{shown(path)}: in a layer, not in the manifest")
            elif listed[path] != present[path]:
                yield _hard("file-differs", f"{shown(path)}: not as the manifest says", present[path], listed[path], kinds[path])


def _problems(info: tarfile.TarInfo, unsorted: bool, root: str) -> Iterator[str]:
    parts = info.name.split("/")
    if info.name.startswith("/") or ".." in parts or "." in parts:
        yield "not a normalised relative path"
    if any(part.startswith(".wh.") for part in parts):
        yield "reads as a deletion"
    if unsorted:
        yield "stands twice, or out of order"
    if not (info.isreg() or info.isdir()):
        yield "neither file nor directory"
    if info.uname or info.gname or info.gid != 0:
        yield "has an owner's name, or a group other than 0"
    inside = bool(root) and info.name.startswith(f"{root}/")
    if info.isreg() and root and not inside:
        yield f"outside of /{root}"
    if inside and not info.name.startswith(f"{root}/live") and stat.S_IMODE(info.mode) & 0o222:
        yield f"mode {info.mode & 0o7777:04o}: somebody may write"
