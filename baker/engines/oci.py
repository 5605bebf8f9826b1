"""Engine `oci`: reads and writes OCI image layouts itself, so that no daemon and no privilege is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baker.engines.base import Base, Image, Recipe
from baker.engines.reference import ACCEPTED, DEFAULT_TAG, LayoutReference, check_tag, parse
from baker.errors import ArtifactError, UsageError
from baker.pack import oci, shape
from baker.pack.ground import Ground, survey_base
from baker.pack.image import ancestors
from baker.pack.layout import Layout, tag_of
from baker.pack.unpack import LayerFile
from baker.spec import Digest

_DEEPEST = 4  # nested indexes that are followed
_SCRATCH = "scratch"
_CREATED = "org.opencontainers.image.created"
_BASE_DIGEST = "org.opencontainers.image.base.digest"


class Oci:
    """OCI layouts: `oci:DIR[:TAG]`."""

    name = "oci"

    def resolve(self, reference: str) -> Base:
        """`scratch` (a bare config for this machine) or an image of a layout, Docker's media types included."""
        if reference == _SCRATCH:
            return Base(_SCRATCH, config={"architecture": oci.architecture(), "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
        where = parse(reference, f"{_SCRATCH}, {ACCEPTED}")
        image = _open(where)
        return Base(
            reference,
            digest=image.digest,
            config=image.config,
            layers=tuple(oci.base_layer(layer) for layer in image.manifest["layers"]),
            created=oci.seconds(image.config.get("created")),
            blobs=image.blobs,
        )

    def ground(self, base: Base, root: str) -> Ground:
        """What the base has on the way to the root; reads every layer of it once and checks its digests."""
        if base.blobs is None:
            ancestors(root)  # refuses a bad root
            return Ground()
        layout = Layout(base.blobs.parent.parent)
        diff_ids = _diff_ids(base)
        files = [LayerFile(layout.blob(layer["digest"]), layer["digest"], diff_id) for layer, diff_id in zip(base.layers, diff_ids, strict=True)]
        return survey_base(base.config, files, root)

    def accept(self, destination: str) -> None:
        """A good reference to a layout, or to an empty or absent directory."""
        Layout.refuse_foreign(parse(destination).directory)

    def build(self, recipe: Recipe, destination: str, tag: str) -> Image:
        """Write the image into `oci:DIR`; `tag` "" takes the destination's own, else `latest`. Other tags of the layout stay."""
        where = parse(destination)
        if tag and where.tag and tag != where.tag:
            raise UsageError(
                f"two tags: {where.tag!r} and {tag!r}", code="two-tags", found=f"{destination}, {tag}", expected="one tag", remedy="leave one out"
            )
        name = check_tag(tag or where.tag or DEFAULT_TAG)
        layout = Layout.create(where.directory)
        with layout.locked():
            layout.publish(self._store(layout, recipe), [name], [])
        return _open(LayoutReference(where.directory, name))

    def publish(
        self, recipe: Recipe, directory: str, tags: Sequence[str], documents: Sequence[tuple[str, bytes]], expected: Mapping[str, str]
    ) -> Image:
        """All tags and attached documents in one write of the index, if the tags of `expected` still name those digests ("": no image)."""
        where = parse(directory)
        layout = Layout.create(where.directory)
        names = [check_tag(tag) for tag in tags]
        with layout.locked():
            here = {tag: str(entry.get("digest")) for entry in layout.entries() if (tag := tag_of(entry))}
            moved = [tag for tag, digest in expected.items() if here.get(tag, "") != digest]
            if moved:
                error = ArtifactError(
                    f"{directory}:{moved[0]} was written by another build meanwhile",
                    code="output-changed",
                    found=here.get(moved[0]) or "no image",
                    expected=expected[moved[0]] or "no image",
                    remedy="run the same command again: what is warmed is kept, and this set joins what is there now",
                )
                error.retryable = True
                raise error
            descriptor = self._store(layout, recipe)
            referrers = [self._refer(layout, descriptor, kind, document) for kind, document in documents]
            layout.publish(descriptor, names, referrers)
        return _open(LayoutReference(where.directory, names[0]))

    def _store(self, layout: Layout, recipe: Recipe) -> dict[str, Any]:
        """Every blob of an image; its descriptor. The caller holds the lock."""
        config = oci.encode(
            oci.image_config(
                recipe.base.config,
                recipe.layers,
                env=recipe.env,
                labels=recipe.labels,
                entrypoint=recipe.entrypoint,
                cmd=recipe.cmd,
                created=recipe.created,
            )
        )
        document = oci.image_manifest(config, recipe.base.layers, recipe.layers, _annotations(recipe))
        manifest = oci.encode(document)
        self._adopt_base(layout, recipe.base)
        for layer in recipe.layers:
            layout.adopt(layer.path, oci.layer_descriptor(layer), check=False)
        layout.put(config)
        layout.put(manifest)
        return oci.descriptor(oci.MANIFEST, manifest, platform=_platform(recipe.base.config))

    @staticmethod
    def _refer(layout: Layout, subject: Mapping[str, Any], artifact_type: str, document: bytes) -> dict[str, Any]:
        """Store a document as a referrer of `subject`; its descriptor. The caller holds the lock."""
        plain = {key: subject[key] for key in ("mediaType", "digest", "size")}
        manifest = oci.encode(oci.referrer_manifest(plain, artifact_type, document))
        for data in (b"{}", document, manifest):
            layout.put(data)
        return oci.descriptor(oci.MANIFEST, manifest, artifactType=artifact_type)

    def _adopt_base(self, layout: Layout, base: Base) -> None:
        if base.blobs is None:
            return
        source = Layout(base.blobs.parent.parent)
        for layer in base.layers:
            layout.adopt(source.blob(layer["digest"]), layer, check=True)

    def read(self, reference: str) -> Image:
        """Open an image of a layout. Without a tag: the only image there. Raises UsageError that lists the tags when the choice is not clear."""
        return _open(parse(reference))

    def attach(self, image: Image, artifact_type: str, document: bytes) -> Digest:
        """Store `document` as a referrer: a manifest with `subject`, listed in index.json with its artifact type."""
        layout = Layout.open(image.blobs.parent.parent)
        subject = oci.descriptor(str(image.manifest.get("mediaType", oci.MANIFEST)), layout.blob(image.digest).read_bytes())
        with layout.locked():
            entry = self._refer(layout, subject, artifact_type, document)
            layout.add(entry)
        return Digest(str(entry["digest"]))

    def referrers(self, image: Image, artifact_type: str) -> Sequence[tuple[Digest, bytes]]:
        """Documents attached to the image, in the order of index.json, which is the order of attaching."""
        layout = Layout.open(image.blobs.parent.parent)
        found = []
        for entry in layout.entries():
            if entry.get("artifactType") != artifact_type:
                continue
            manifest = shape.require(layout.document(entry), shape.REFERRER, f"{image.reference}: an attached manifest")
            if (manifest.get("subject") or {}).get("digest") == image.digest:
                found += [(Digest(str(entry["digest"])), layout.read(layer)) for layer in manifest["layers"][:1]]
        return found


def _annotations(recipe: Recipe) -> dict[str, str]:
    found = {_CREATED: oci.timestamp(recipe.created)}
    if recipe.base.digest:
        found[_BASE_DIGEST] = recipe.base.digest
    return found


def _platform(config: Mapping[str, Any]) -> dict[str, str]:
    return {"architecture": str(config.get("architecture") or oci.architecture()), "os": str(config.get("os") or "linux")}


def _diff_ids(base: Base) -> list[str]:
    found = list((base.config.get("rootfs") or {}).get("diff_ids") or [])
    if len(found) != len(base.layers):
        raise ArtifactError(
            f"{base.reference}: config and manifest differ in the number of layers",
            code="layer-count",
            found=str(len(found)),
            expected=str(len(base.layers)),
            remedy="get the base again",
        )
    return found


def _open(where: LayoutReference) -> Image:
    layout = Layout.open(where.directory)
    entry = _choose(layout, where)
    for _ in range(_DEEPEST):
        if entry.get("mediaType") not in oci.INDEXES:
            break
        entry = _for_this_machine(layout, entry, where)
    manifest = layout.document(entry)
    media_type = entry.get("mediaType") or manifest.get("mediaType")
    layers, config = manifest.get("layers"), manifest.get("config")
    if media_type not in oci.MANIFESTS or not isinstance(layers, list) or not isinstance(config, dict):
        raise ArtifactError(
            f"{where}: not an image manifest", code="not-an-image", found=str(media_type), expected=" or ".join(oci.MANIFESTS), remedy="name an image"
        )
    shape.require(manifest, shape.MANIFEST, f"{where}: the manifest")
    found = shape.require(layout.document(config), shape.CONFIG, f"{where}: the config")
    return Image(reference=str(where), digest=Digest(str(entry["digest"])), manifest=manifest, config=found, blobs=layout.blobs)


def _choose(layout: Layout, where: LayoutReference) -> Mapping[str, Any]:
    """The index entry that a reference means; referrers are no images."""
    images = [entry for entry in layout.entries() if "artifactType" not in entry]
    tags = sorted({tag_of(entry) for entry in images} - {""})
    found = [entry for entry in images if tag_of(entry) == where.tag] if where.tag else images
    if len({entry.get("digest") for entry in found}) == 1:
        return found[0]
    if where.tag and found:
        raise ArtifactError(f"{where}: two images carry this tag", code="ambiguous-tag", found=str(len(found)), expected="one", remedy="tag one anew")
    raise UsageError(
        f"{where}: {'no such tag' if where.tag else 'which image?'}",
        code="no-such-tag" if where.tag else "tag-needed",
        found=where.tag or f"{len(found)} images",
        expected="one of: " + (", ".join(tags) or "(no tags)"),
        remedy=f"name one, for example oci:{where.directory}:{tags[0]}" if tags else "build an image there first",
    )


def _for_this_machine(layout: Layout, entry: Mapping[str, Any], where: LayoutReference) -> Mapping[str, Any]:
    wanted = {"architecture": oci.architecture(), "os": "linux"}
    children = [child for child in layout.document(entry).get("manifests") or [] if isinstance(child, dict)]
    for child in children:
        platform = child.get("platform") or {}
        if all(platform.get(key) == value for key, value in wanted.items()):
            return child
    offered = ", ".join(f"{p.get('os')}/{p.get('architecture')}" for p in (child.get("platform") or {} for child in children))
    raise ArtifactError(
        f"{where}: no image for this machine",
        code="no-platform",
        found=offered or "an empty index",
        expected=f"{wanted['os']}/{wanted['architecture']}",
        remedy="name an image for this machine's architecture",
    )
