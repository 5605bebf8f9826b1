"""Reading finished images: manifest, bake record, proofs, layers; and attaching a new proof."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.engines.base import Engine, Image
from baker.errors import ArtifactError, UsageError
from baker.inside.manifest import Manifest, ManifestError, canonical, digest, parse
from baker.pack import oci, shape
from baker.pack.image import LABEL_PLAN, LABEL_SET
from baker.pack.layout import Layout, tag_of
from baker.pack.reading import LayerReader, entry_name
from baker.pack.unpack import own_layers
from baker.spec import Plan
from baker.steps import proof as proofs
from baker.steps.proof import Proof

RECORD_TYPE = "application/vnd.baker.bake.v1+json"
_TIMES = {"*": {"first_ttft_s!": shape.NUMBER, "step_s": shape.NUMBER}}
_PHASES = {"*": shape.NUMBER}
_FILES = {"new!": [str], "changed!": [str], "allowed": {"*": [str]}}
# What is read of the attached documents; everything else in them is shown as it is.
_SHAPES: Mapping[str, Any] = {
    RECORD_TYPE: {
        "strategy": str,
        "rounds": [{"phases_s": _PHASES, "stages": _TIMES, "files": _FILES, "event_count": int}],
        "fallen": [{"strategy!": str, "reason!": str, "evidence": dict}],
        "partial": {"*": [str]},
        "sets": {"*": {"carried": {"image!": str, "verdict!": str}}},
    },
    proofs.ARTIFACT_TYPE: {
        "image!": str,
        "verdict!": str,
        "strategy": str,
        "cold!": {"n!": int, "phases_s!": _PHASES, "stages!": _TIMES, "files": int, "events": int},
        "warm!": {"n!": int, "phases_s!": _PHASES},
        "starts!": [{"name!": str, "phases_s": _PHASES, "stages": _TIMES, "files": _FILES, "event_count": int}],
        "findings": [dict],
    },
}
_KIND = {"name!": str, "variables!": shape.TEXTS, "files!": [{"path!": str, "size!": int, "sha256!": str}], "rows!": [dict]}
_BAKED: Mapping[str, Any] = {
    "plan!": {"id": str, "uncovered": [str]},
    "sets!": [
        {
            "name!": str,
            "plan": {"id": str},
            "target!": {"arch!": str, "product": str},
            "strategy!": {"name": str, "fail_hard": shape.TEXTS, "load_lines": [str]},
            "builder!": dict,
            "neutral!": dict,
            "serve!": {"program!": [str], "argv!": [str], "env!": shape.TEXTS, "reference": [[int]]},
            "kinds!": [_KIND],
            "pinned": [str],
            "coverage": {"stages": [{"name!": str, "groups!": [[[int]]]}], "rounds": [dict], "uncovered": [str]},
        }
    ],
}
DIGEST_VARIABLE = "BAKER_MANIFEST_DIGEST"


@dataclass(frozen=True, slots=True)
class Opened:
    """An image with its documents. `record` is the bake record (rounds, timings, fallen strategies), {} when none is attached."""

    image: Image
    manifest: Manifest
    record: Mapping[str, Any]
    proofs: tuple[Mapping[str, Any], ...]  # oldest first
    env: Mapping[str, str]
    layer_paths: tuple[Path, ...]


def environment(image: Image) -> dict[str, str]:
    """The config's ENV as a mapping."""
    return dict(item.partition("=")[::2] for item in (image.config.get("config") or {}).get("Env") or [])


def layer_paths(image: Image) -> tuple[Path, ...]:
    """Blob files of baker's own layers, lowest first; the base's are this machine's own file system already."""
    return tuple(layer.path for layer in own_layers(image.manifest, image.config, image.blobs))


def open_image(engine: Engine, image: Image) -> Opened:
    """Read everything that an image says of itself. Raises ArtifactError when it is not one of baker's, or its manifest is not the one of its ENV."""
    env = environment(image)
    expected = env.get(DIGEST_VARIABLE, "")
    data = _manifest_bytes(image)
    if not expected or digest(data) != expected:
        raise ArtifactError(
            f"{image.reference}: the manifest is not the one that the image was built with",
            code="manifest-digest",
            found=digest(data),
            expected=expected or f"{DIGEST_VARIABLE} in the image's ENV",
            remedy="do not use this image; build it again",
        )
    try:
        manifest = parse(data)
    except ManifestError as error:
        raise ArtifactError(
            f"{image.reference}: {error}", code="manifest-damaged", found=str(error), expected="a manifest", remedy="build it again"
        ) from None
    shape.require(manifest.raw, _BAKED, f"{image.reference}: manifest.json")
    proven = tuple(document for document in _documents(engine, image, proofs.ARTIFACT_TYPE) if document["image"] == image.digest)
    return Opened(image, manifest, _latest(engine, image, RECORD_TYPE), proven, env, layer_paths(image))


def _manifest_bytes(image: Image) -> bytes:
    for path in reversed(layer_paths(image)):
        with LayerReader(path) as reader:
            for info in reader:
                name = entry_name(info)
                if (name == "manifest.json" or name.endswith("/manifest.json")) and "/sets/" not in name and info.isfile():
                    return b"".join(reader.content(info))
    raise ArtifactError(
        f"{image.reference} holds no baker manifest",
        code="not-baked",
        found="no manifest.json in any layer",
        expected="an image that baker built",
        remedy="pass another reference",
    )


def _documents(engine: Engine, image: Image, artifact_type: str) -> tuple[Mapping[str, Any], ...]:
    found = []
    for name, data in engine.referrers(image, artifact_type):
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(
                f"{image.reference}: the attached document {name} is damaged",
                code="referrer-damaged",
                found=str(error),
                expected="JSON",
                remedy="copy the image again, or build it again",
            ) from None
        found.append(shape.require(document, _SHAPES[artifact_type], f"{image.reference}: the attached document {name}"))
    return tuple(found)


def _latest(engine: Engine, image: Image, artifact_type: str) -> Mapping[str, Any]:
    documents = _documents(engine, image, artifact_type)
    return documents[-1] if documents else {}


def left_out(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What --allow-partial left out, one line a file, from a bake record."""
    return tuple(f"{kind}: left out {path}" for kind, paths in (record.get("partial") or {}).items() for path in paths)


def attach_proof(engine: Engine, image: Image, proof: Proof) -> None:
    """Store a proof beside the image."""
    engine.attach(image, proofs.ARTIFACT_TYPE, canonical(proof.document))


def tagged(destination: str, tag: str) -> str:
    """`oci:DIR:TAG`; a destination that names a tag keeps it."""
    directory = destination.removeprefix("oci:")
    return destination if ":" in directory.rpartition("/")[2] else f"{destination}:{tag}"


def digest_at(engine: Engine, reference: str) -> str:
    """The digest that a tag names now; "" when there is none, or nothing that can be read (`merge.find` tells the two apart)."""
    try:
        return engine.read(reference).digest
    except (UsageError, ArtifactError):
        return ""


def existing(engine: Engine, reference: str, plan: Plan) -> Image | None:
    """The image with this very plan and set at the reference, if it is there and whole."""
    try:
        image = engine.read(reference)
    except (UsageError, ArtifactError):
        return None
    if not engine.referrers(image, RECORD_TYPE):
        return None  # of a build that was killed before it could tell what it did
    labels = (image.config.get("config") or {}).get("Labels") or {}
    if (plan.set_name, plan.id) not in zip(*(labels.get(label, "").split(",") for label in (LABEL_SET, LABEL_PLAN)), strict=False):
        return None
    return image if all(path.exists() for path in layer_paths(image)) else None


def tags(engine: Engine, image: Image) -> list[str]:
    """Tags of the image's layout that name this very image, in the order of its index."""
    layout = Layout.open(image.blobs.parent.parent)
    return [tag for entry in layout.entries() if entry.get("digest") == image.digest and (tag := tag_of(entry))]


def set_names(opened: Opened) -> list[str]:
    """Names of the image's sets, in manifest order."""
    return [cache_set.name for cache_set in opened.manifest.sets]


def record_of(opened: Opened, name: str) -> Mapping[str, Any]:
    """The bake record of one set: the image's own, or one that was taken over from the image to which a set was added."""
    others = opened.record.get("sets") or {}
    found: Mapping[str, Any] = others.get(name) or {key: value for key, value in opened.record.items() if key != "sets"}
    return found


def proof_of(opened: Opened, name: str) -> Mapping[str, Any] | None:
    """The latest proof of this very image that started the set."""
    return next((proof for proof in reversed(opened.proofs) if proof.get("set", name) == name), None)


def verdict_of(opened: Opened, name: str) -> str:
    """`proven`, `virtual` or `unproven` for one set; `… in sha256:…` when that was the image from which its layers were taken over unchanged."""
    if proof := proof_of(opened, name):
        return str(proof["verdict"])
    before = record_of(opened, name).get("carried") or {}
    return f"{before['verdict']} in {before['image']}, layers unchanged" if before.get("image") else "unproven"


def plan_of(opened: Opened, name: str) -> Mapping[str, Any]:
    """The plan of one set; images with one set keep it at the top."""
    found: Mapping[str, Any] = next((s.raw["plan"] for s in opened.manifest.sets if s.name == name and "plan" in s.raw), opened.manifest.plan)
    return found


def layer_table(image: Image) -> tuple[Mapping[str, Any], ...]:
    """One row a layer: kind, compressed size in bytes, digest, diff ID, media type."""
    diff_ids: Sequence[str] = (image.config.get("rootfs") or {}).get("diff_ids") or []
    rows = []
    for index, layer in enumerate(image.manifest.get("layers", ())):
        annotations = layer.get("annotations") or {}
        rows.append(
            {
                "kind": " ".join(filter(None, (annotations.get(oci.KIND) or "base", annotations.get(oci.PART)))),
                "size": layer.get("size"),
                "digest": layer.get("digest"),
                "diff_id": diff_ids[index] if index < len(diff_ids) else "",
                "media_type": layer.get("mediaType"),
            }
        )
    return tuple(rows)
