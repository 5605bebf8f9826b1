"""What an image holds below its root (design 5.2), as layers; and the environment, labels and entry point that belong to it.

One layer a kind, most stable first, then start + bin + live, then the manifest, which changes most often. Every layer names all its parent
directories that the base lacks, always alike, so a layer does not depend on which others stand below it.

Modes: pristine 0444 in 0555, owned by root: nobody may write. The root itself 0755, as a base has it. `live` and `live/<kind>` are 0775, owned by the
user of the base and group 0: OpenShift runs a random UID in group 0, Docker the image's own USER, and both must write there. No set-group-ID bit,
because group 0 is already the primary group of such a UID; not 1777, because cache files are code and other users of the container must not add
any. Every other UID gets a private live from `start`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import baker
from baker.errors import UsageError
from baker.inside.manifest import SCHEMA, FileEntry
from baker.pack.layer import Layer, Member, blob, directory, tree_members, write_layer

# Labels repeat what a reader wants to know without pulling a layer. The proof cannot be one: it names the image's digest.
LABEL_SCHEMA = "io.baker.schema"  # manifest schema version
LABEL_VERSION = "io.baker.version"  # baker that built the image
LABEL_ROOT = "io.baker.root"
LABEL_PLAN = "io.baker.plan"  # plan.id
LABEL_SET = "io.baker.set"  # name of the set
LABEL_ARCH = "io.baker.arch"  # "cpu" or "sm_90"
LABEL_PRODUCT = "io.baker.product"  # GPU's marketing name; absent where any will do
LABEL_KINDS = "io.baker.kinds"  # comma-separated, in layer order
LABEL_VERSIONS = "io.baker.versions"  # JSON object: component -> version
LABEL_MANIFEST = "io.baker.manifest"  # digest of manifest.json
LABEL_VIRTUAL = "io.baker.virtual"  # "true" when a set was baked on a stand-in driver, without the GPU; absent otherwise
LABEL_UNPROVEN = "io.baker.unproven"  # "true" when built with --no-prove; absent otherwise

DIGEST_VARIABLE = "BAKER_MANIFEST_DIGEST"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's own default for an image without PATH
MANIFEST_LAYER = "manifest"
DEBUG = "debug"
START_LAYER = "start"
_PARENT_MODE = 0o755


@dataclass(frozen=True, slots=True)
class KindTree:
    """One kind to pack: its surveyed files below `source`. `stability` orders the layers, lower first."""

    name: str
    stability: int
    source: Path
    files: Sequence[FileEntry]
    debug: tuple[str, ...] = ()  # fnmatch patterns of files that get a layer of their own

    def parts(self) -> list[tuple[str, Sequence[FileEntry]]]:
        """("", files) and, where there are any, ("debug", files)."""
        apart = [file for file in self.files if any(fnmatchcase(file.path, pattern) for pattern in self.debug)]
        rest = [file for file in self.files if file not in apart] if apart else self.files
        return [("", rest), *([(DEBUG, apart)] if apart else [])]


@dataclass(frozen=True, slots=True)
class Packer:
    """How layers of one image are written: `created` is seconds since the epoch; `existing` holds parent directories that the base has."""

    root: str
    out: Path
    created: int
    compression: str = "gzip"
    existing: Collection[str] = ()
    live_uid: int = 0

    def kind_layer(self, set_name: str, tree: KindTree, files: Sequence[FileEntry] | None = None) -> Layer:
        """`<root>/sets/<set>/<kind>/…`. The bytes depend on the files (default: all), the set's name, the root and `created` only."""
        prefix = f"{self._base}/sets/{set_name}/{tree.name}"
        ours = [directory(f"{self._base}/sets"), directory(f"{self._base}/sets/{set_name}"), directory(prefix)]
        return self._write(tree.name, [*ours, *tree_members(tree.source, prefix, tree.files if files is None else files)])

    def start_layer(self, start: bytes, shims: Mapping[str, bytes], kinds: Sequence[str]) -> Layer:
        """The entry point, the shims in `bin`, and the empty `live` directories."""
        members = [blob(f"{self._base}/start", start, 0o555), directory(f"{self._base}/bin")]
        members += [blob(f"{self._base}/bin/{name}", data, 0o555) for name, data in shims.items()]
        members += [directory(f"{self._base}/live", 0o775, self.live_uid)]
        members += [directory(f"{self._base}/live/{kind}", 0o775, self.live_uid) for kind in kinds]
        return self._write(START_LAYER, members)

    def manifest_layer(self, manifest: bytes) -> Layer:
        """`<root>/manifest.json`."""
        return self._write(MANIFEST_LAYER, [blob(f"{self._base}/manifest.json", manifest)])

    def layers(self, set_name: str, trees: Sequence[KindTree], start: bytes, shims: Mapping[str, bytes], manifest: bytes) -> tuple[Layer, ...]:
        """All layers of a one-set image, lowest first."""
        kinds = self.kind_layers(set_name, trees)
        return (*kinds, self.start_layer(start, shims, [layer.kind for layer in kinds]), self.manifest_layer(manifest))

    def kind_layers(self, set_name: str, trees: Sequence[KindTree]) -> tuple[Layer, ...]:
        """The layers of one set's kinds, most stable first, marked as that set's."""
        ordered = sorted(trees, key=lambda tree: (tree.stability, tree.name))
        parts = [(tree, part, files) for tree in ordered for part, files in tree.parts()]
        return tuple(replace(self.kind_layer(set_name, tree, files), set_name=set_name, part=part) for tree, part, files in parts)

    @property
    def _base(self) -> str:
        return self.root.strip("/")

    def _write(self, kind: str, members: Sequence[Member]) -> Layer:
        parents = [directory(path, _PARENT_MODE) for path in ancestors(self.root) if path not in self.existing]
        return write_layer(kind, [*parents, *members], self.out, created=self.created, compression=self.compression)


def ancestors(root: str) -> tuple[str, ...]:
    """The root and the directories above it, without leading slash: `/opt/baker` gives ("opt", "opt/baker"). Raises UsageError for a bad root."""
    parts = root.split("/")[1:]
    if not root.startswith("/") or any(part in ("", ".", "..") or part.startswith(".wh.") for part in parts) or ":" in root or not root.isprintable():
        raise UsageError(
            f"not usable as root: {root!r}",
            code="bad-root",
            found=root,
            expected="an absolute, normalised path below / of printable characters without ':' (it stands on PATH) and '.wh.' (a mark of deletion)",
            remedy="pass --root /opt/baker or a path like it",
        )
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def environment(base: Sequence[str], root: str, pins: Mapping[str, str], manifest_digest: str) -> dict[str, str]:
    """What the image's ENV gets on top of the base's (`NAME=value` strings): pins, the manifest's digest, and PATH with `<root>/bin` first."""
    known = dict(entry.partition("=")[::2] for entry in base)
    own = f"{root}/bin"
    rest = [part for part in known.get("PATH", DEFAULT_PATH).split(":") if part != own]
    return {**pins, "PATH": ":".join([own, *rest]), DIGEST_VARIABLE: manifest_digest}


def entrypoint(python: str, root: str, program: Sequence[str]) -> tuple[str, ...]:
    """`start` under the server's interpreter, isolated and without site-packages, then the program (the base's own entry point)."""
    return (python, "-I", "-S", f"{root}/start", "--", *program)


def labels(
    *,
    root: str,
    plan_id: str,
    set_name: str,
    arch: str,
    kinds: Sequence[str],
    versions: Mapping[str, str],
    manifest_digest: str,
    product: str = "",
    unproven: bool = False,
    virtual: bool = False,
) -> dict[str, str]:
    """The image's labels. `versions` maps components to versions; all values are text, as OCI wants them."""
    found = {
        LABEL_SCHEMA: str(SCHEMA),
        LABEL_VERSION: baker.__version__,
        LABEL_ROOT: root,
        LABEL_PLAN: plan_id,
        LABEL_SET: set_name,
        LABEL_ARCH: arch,
        LABEL_KINDS: ",".join(kinds),
        LABEL_VERSIONS: json.dumps(dict(sorted(versions.items())), separators=(",", ":")),
        LABEL_MANIFEST: manifest_digest,
    }
    if product:
        found[LABEL_PRODUCT] = product
    if virtual:
        found[LABEL_VIRTUAL] = "true"
    if unproven:
        found[LABEL_UNPROVEN] = "true"
    return found


def creation_time(environ: Mapping[str, str], base_created: int = 0) -> int:
    """Seconds since the epoch for every time in the image: SOURCE_DATE_EPOCH, else the base's, else 0 (design 5.6). Raises UsageError."""
    text = environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return max(base_created, 0)
    # 253402300799 is the last second of year 9999, the last that RFC 3339 can write.
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) > 253402300799:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is not a time: {text!r}",
            code="bad-source-date",
            found=text,
            expected="seconds since the epoch, digits only",
            remedy="unset it, or set it to `git log -1 --format=%ct`",
        )
    return int(text)
