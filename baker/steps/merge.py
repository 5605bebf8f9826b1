"""Several sets in one image: what a build finds at its destination and keeps (ADR 0011).

A second build adds its set to an image of the same base, root, runtime and interpreter; the layers of the sets that stay are taken over as they are.
One image has one environment, so the variables of all sets must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.caches import ALL as KINDS
from baker.caches import by_name
from baker.engines.base import Engine, Image, Layer
from baker.errors import ArtifactError, UsageError
from baker.inside.arguments import compare_arguments, compare_variables
from baker.pack import oci
from baker.pack.image import DIGEST_VARIABLE, LABEL_SET
from baker.pack.reading import file_digest
from baker.pack.unpack import own_layers
from baker.spec import DiffId, Digest, Plan, Strategy
from baker.steps import images

_IMAGE_ONLY = ("PATH", DIGEST_VARIABLE)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An image that a build adds to: the sets that stay (manifest form), their layers, bake records and proofs, its CMD and tag."""

    image: Image
    tag: str
    sets: tuple[Mapping[str, Any], ...]
    layers: tuple[Layer, ...]
    records: Mapping[str, Any]
    proofs: Mapping[str, Any]
    env: Mapping[str, str]
    cmd: tuple[str, ...]


def wanted_tag(engine: Engine, destination: str, plan: Plan, named: bool) -> str:
    """The tag that a build writes: the destination's own; with --set that of the only image there; else the set's name."""
    if has_tag(destination):
        return destination.rpartition(":")[2]
    if named:
        try:
            image = engine.read(destination)
        except UsageError as error:
            if error.code == "tag-needed" and "0 images" not in error.found:
                raise  # several images: which one the set joins is not ours to guess
            return plan.set_name
        except ArtifactError:
            return plan.set_name  # nothing there, or damaged: `find` says which
        names = [tag for tag in images.tags(engine, image) if tag]
        if _labels(image).get(LABEL_SET) and names:
            return plan.set_name if plan.set_name in names else names[0]
    return plan.set_name


def has_tag(destination: str) -> bool:
    """Whether `oci:DIR:TAG` names a tag."""
    return ":" in destination.removeprefix("oci:").rpartition("/")[2]


def find(engine: Engine, directory: str, tag: str, plan: Plan, *, force: bool) -> Neighbour | None:
    """The image at `<directory>:<tag>` when it holds sets that must stay.

    Raises UsageError when this build's set cannot join them, ArtifactError when the image is damaged.
    """
    try:
        image = engine.read(f"{directory}:{tag}")
        labels = _labels(image)
        if not labels.get(LABEL_SET) or set(labels[LABEL_SET].split(",")) == {plan.set_name}:
            return None  # another program's image, or one that this build replaces
        opened = images.open_image(engine, image)
        _require_whole(opened)
    except UsageError as error:
        if error.code == "no-such-tag":
            return None
        raise
    except ArtifactError as error:
        if force or (error.code == "not-a-layout" and not _blobs(directory)):
            return None
        raise ArtifactError(
            f"the image that this build would add its set to is damaged: {error.message}",
            code=error.code,
            found=error.found,
            expected=error.expected,
            remedy="build its other sets again, or pass --force to replace it by an image with this set alone",
        ) from None
    stay = tuple({"plan": opened.manifest.raw["plan"], **entry} for entry in opened.manifest.raw["sets"] if entry["name"] != plan.set_name)
    for entry in stay:
        _require_same(entry, plan, opened.manifest.root, f"{directory}:{tag}")
        _require_apart(entry, plan)
    return Neighbour(
        image,
        tag,
        stay,
        tuple(_layers(image, [str(entry["name"]) for entry in stay], opened.manifest.raw["sets"])),
        {str(entry["name"]): images.record_of(opened, str(entry["name"])) for entry in stay},
        {str(entry["name"]): found for entry in stay if (found := images.proof_of(opened, str(entry["name"])))},
        {name: value for name, value in opened.env.items() if name not in _IMAGE_ONLY},
        tuple((image.config.get("config") or {}).get("Cmd") or ()),
    )


def _blobs(directory: str) -> bool:
    """Whether anything was ever stored there: an index that is gone is damage, an absent or empty directory is none."""
    place = Path(directory.removeprefix("oci:")) / "blobs" / "sha256"
    try:
        return any(place.iterdir())
    except OSError:
        return False


def _require_whole(opened: images.Opened) -> None:
    """Raise ArtifactError for a layer of baker's own that is absent or not its digest, or that belongs to no set, and for kinds of a newer baker."""
    names = set(images.set_names(opened))
    for descriptor in opened.image.manifest["layers"]:
        owner = (descriptor.get("annotations") or {}).get(oci.SET)
        if owner and owner not in names:
            raise ArtifactError(f"a layer belongs to set {owner!r}, which the manifest does not name", code="document-malformed", found=owner)
    for layer in own_layers(opened.image.manifest, opened.image.config, opened.image.blobs):
        found = file_digest(layer.path)[0] if layer.path.is_file() else "no blob"
        if found != layer.digest:
            code = "blob-missing" if found == "no blob" else "blob-damaged"
            raise ArtifactError(f"layer {layer.path.name[:12]}… is not whole", code=code, found=found, expected=layer.digest)
    unknown = sorted({kind.name for cache_set in opened.manifest.sets for kind in cache_set.kinds} - {kind.name for kind in KINDS})
    if unknown:
        raise ArtifactError(f"kind {unknown[0]} is not known to this version of baker", code="unknown-kind", found=unknown[0])


def _require_apart(entry: Mapping[str, Any], plan: Plan) -> None:
    """Raise UsageError when start could never tell the new set from this one: the same machine and no argument that matters."""
    target, serve = entry["target"], entry["serve"]
    same_product = not plan.target.is_gpu or (plan.target.product and plan.target.product == target.get("product"))
    if target["arch"] != plan.target.arch or not same_product:
        return
    differing = compare_arguments([*serve["program"], *plan.serve], serve, entry["neutral"])
    if not any(finding.severity == "hard" for finding in differing):
        raise UsageError(
            f"set {entry['name']} of this image is for the same machine and the same arguments: start would never pick set {plan.set_name}",
            code="set-shadowed",
            found=f"{target['arch']} {target.get('product') or ''}".strip(),
            expected="another product, architecture, or an argument that is not neutral",
            remedy=f"pass --set {entry['name']} to replace it, or give this build a tag or an --output of its own",
        )


def conflict(neighbour: Neighbour | None, strategy: Strategy) -> str:
    """Why a strategy cannot be used beside the sets that stay: one image has one environment. "" when it can."""
    for entry in neighbour.sets if neighbour else ():
        theirs = entry["serve"]["env"]
        own = set(entry["strategy"].get("env") or {})
        for name in sorted(own | strategy.env.keys()):
            if strategy.env.get(name) != theirs.get(name):
                return f"set {entry['name']} of this image needs {name}={theirs.get(name, '(unset)')}, and one image has one environment"
    return ""


def _labels(image: Image) -> Mapping[str, str]:
    return (image.config.get("config") or {}).get("Labels") or {}


def _require_same(entry: Mapping[str, Any], plan: Plan, root: str, reference: str) -> None:
    there, here = entry["plan"], plan.document
    pairs = {
        "root": (root, plan.root),
        "base": (there.get("base"), here["base"]),
        "runtime": (there.get("runtime"), here["runtime"]),
        "interpreter": ((there.get("interpreter") or {}).get("executable"), plan.interpreter.executable),
        "version": (there.get("version"), here.get("version")),
    }
    for name, (found, expected) in pairs.items():
        if found != expected:
            raise UsageError(
                f"{reference} holds set {entry['name']}, and this build's set cannot join it: another {name}",
                code="set-conflict",
                found=str(expected)[:300],
                expected=str(found)[:300],
                remedy="give this build a tag or an --output of its own",
            )


def _layers(image: Image, names: Sequence[str], sets: Sequence[Mapping[str, Any]]) -> list[Layer]:
    """The kind layers of the sets `names`, as layers that an image can be built of."""
    only = str(sets[0]["name"]) if len(sets) == 1 else ""
    descriptors = [layer for layer in image.manifest["layers"] if oci.KIND in (layer.get("annotations") or {})]
    found = []
    for descriptor, file in zip(descriptors, own_layers(image.manifest, image.config, image.blobs), strict=True):
        notes = descriptor["annotations"]
        owner = str(notes.get(oci.SET) or (only if notes[oci.KIND] not in ("start", "manifest") else ""))
        if owner not in names:
            continue
        files = [f for s in sets if s["name"] == owner for k in s["kinds"] if k["name"] == notes[oci.KIND] for f in k["files"]]
        unpacked, count = sum(int(entry["size"]) for entry in files), len(files)
        media, size = str(descriptor["mediaType"]), int(descriptor["size"])
        part = str(notes.get(oci.PART) or "")
        found.append(Layer(str(notes[oci.KIND]), Digest(file.digest), DiffId(file.diff_id), size, unpacked, count, media, file.path, owner, part))
    return found


def ordered(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Kind layers of all sets, most stable kinds first."""
    return tuple(sorted(layers, key=lambda layer: (by_name(layer.kind).stability, layer.kind, layer.set_name, layer.part)))


def environment(neighbour: Neighbour | None, entry: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """One environment for all sets. Raises UsageError when a variable that one set depends on differs, naming it and both values."""
    if neighbour is None:
        return dict(env)
    there = {name: value for one in neighbour.sets for name, value in one["serve"]["env"].items()}
    merged = {**there, **env}
    for one in (*neighbour.sets, entry):
        own = [name for kind in one["kinds"] for name in kind["variables"]]
        hard = [f for f in compare_variables(merged, one["serve"], one["neutral"], own) if f.severity == "hard"]
        if hard:
            raise UsageError(
                f"set {one['name']} and another set of this image need different environments: {hard[0].message}",
                code="set-conflict",
                found=str(hard[0].found),
                expected=str(hard[0].expected),
                remedy="one image has one environment: give this build a tag or an --output of its own",
            )
    return merged


def carried(neighbour: Neighbour | None) -> dict[str, Any]:
    """For the bake record: the sets that were taken over, with the image in which each was proven last. Their layers are the same, byte for byte."""
    if neighbour is None:
        return {}
    found = {}
    for name, record in neighbour.records.items():
        proof = neighbour.proofs.get(name)
        before = {"image": proof["image"], "verdict": proof["verdict"]} if proof else record.get("carried") or {"image": "", "verdict": "unproven"}
        found[name] = {**{key: value for key, value in record.items() if key != "sets"}, "carried": before}
    return found


def pinned(neighbour: Neighbour | None) -> list[str]:
    """Kinds whose variables the sets that stay pin, empty ones included."""
    return [str(kind) for entry in (neighbour.sets if neighbour else ()) for kind in entry.get("pinned") or ()]


def cmd(neighbour: Neighbour | None, argv: Sequence[str]) -> tuple[str, ...]:
    """The image's CMD: the first set's stays."""
    return neighbour.cmd if neighbour is not None and neighbour.cmd else tuple(argv)
