"""OCI documents: media types, image config, image manifest, referrer manifest. Pure: dictionaries in, dictionaries out.

Source: OCI image specification 1.1 (config.md, manifest.md, descriptor.md). Docker's types are read and mapped, never written.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from baker.errors import ArtifactError, MachineError
from baker.inside.manifest import canonical, digest
from baker.pack.layer import Layer

Document = dict[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
KIND = "io.baker.kind"  # annotation on the descriptor of a layer of ours
SET = "io.baker.set"  # annotation of a kind's layer: the set that it belongs to
PART = "io.baker.part"

INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_DOCKER = "application/vnd.docker.image.rootfs."
_OCI = "application/vnd.oci.image.layer."
_LAYERS = {
    _DOCKER + "diff.tar": _OCI + "v1.tar",
    _DOCKER + "diff.tar.gzip": _OCI + "v1.tar+gzip",
    _DOCKER + "diff.tar.zstd": _OCI + "v1.tar+zstd",
    _DOCKER + "foreign.diff.tar.gzip": _OCI + "nondistributable.v1.tar+gzip",
}
# What one container of the base left in its config; none of it is true of the new image.
_DROPPED = ("container", "container_config", "docker_version", "id", "parent")
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def architecture(machine: str = "") -> str:
    """The OCI name of a machine (default: this one). Raises MachineError for one that baker does not know."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise MachineError(f"unknown machine {machine!r}", code="unknown-machine", found=machine, expected=", ".join(sorted(_MACHINES)))
    return _MACHINES[machine]


def timestamp(seconds: int) -> str:
    """RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: object) -> int:
    """Seconds since the epoch of an RFC 3339 time; 0 for none, for nonsense and for times before the epoch (builders write year 1 for "unset")."""
    try:
        moment = datetime.fromisoformat(str(text))
        return max(int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()), 0)
    except (ValueError, OverflowError):
        return 0


def descriptor(media_type: str, data: bytes, **more: Any) -> Document:
    """Descriptor of a document at hand."""
    return {"mediaType": media_type, "digest": digest(data), "size": len(data), **more}


def base_layer(entry: Mapping[str, Any]) -> Document:
    """A base's layer descriptor with its media type in OCI terms; digest and size stay."""
    return {**entry, "mediaType": _LAYERS.get(str(entry.get("mediaType")), entry.get("mediaType"))}


def layer_descriptor(layer: Layer) -> Document:
    """Descriptor of a packed layer, marked as ours."""
    notes = {KIND: layer.kind, **({SET: layer.set_name} if layer.set_name else {}), **({PART: layer.part} if layer.part else {})}
    return {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size, "annotations": notes}


def _merged_env(base: Sequence[str], env: Mapping[str, str]) -> list[str]:
    names = [entry.partition("=")[0] for entry in base]
    kept = [f"{name}={env[name]}" if name in env else entry for name, entry in zip(names, base, strict=True)]
    return kept + [f"{name}={env[name]}" for name in sorted(env) if name not in names]


def _history(base: Mapping[str, Any], count: int) -> list[Document]:
    """The base's history when it fits its layers, else one plain line a layer: readers refuse a history that does not match."""
    history = base.get("history")
    if isinstance(history, list) and sum(1 for h in history if isinstance(h, dict) and not h.get("empty_layer")) == count:
        return copy.deepcopy(history)
    return [{"created_by": "layer of the base image"} for _ in range(count)]


def image_config(
    base: Mapping[str, Any],
    layers: Sequence[Layer],
    *,
    env: Mapping[str, str],
    labels: Mapping[str, str],
    entrypoint: Sequence[str],
    cmd: Sequence[str],
    created: int,
) -> Document:
    """The config of `base` with our layers on top. USER, VOLUME, WORKDIR, ENV and labels of the base stay; `created` is seconds since the epoch."""
    config = {key: copy.deepcopy(value) for key, value in base.items() if key not in _DROPPED}
    inner = dict(config.get("config") or {})
    inner["Env"] = _merged_env(inner.get("Env") or [], env)
    inner["Labels"] = dict(sorted({**(inner.get("Labels") or {}), **labels}.items()))
    inner["Entrypoint"], inner["Cmd"] = list(entrypoint), list(cmd)
    below = list((config.get("rootfs") or {}).get("diff_ids") or [])
    when = timestamp(created)
    ours = [{"created": when, "created_by": f"baker: {layer.kind}", "comment": f"{layer.files} files, {layer.unpacked} bytes"} for layer in layers]
    config.update(
        created=when,
        architecture=config.get("architecture") or architecture(),
        os=config.get("os") or "linux",
        config=inner,
        rootfs={"type": "layers", "diff_ids": [*below, *(layer.diff_id for layer in layers)]},
        history=[*_history(base, len(below)), *ours],
    )
    return config


def image_manifest(config: bytes, base_layers: Sequence[Mapping[str, Any]], layers: Sequence[Layer], annotations: Mapping[str, str]) -> Document:
    """The manifest: base layers by reference, then ours."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, config),
        "layers": [*(base_layer(entry) for entry in base_layers), *(layer_descriptor(layer) for layer in layers)],
        "annotations": dict(sorted(annotations.items())),
    }


def referrer_manifest(subject: Mapping[str, Any], artifact_type: str, document: bytes) -> Document:
    """A manifest that attaches `document` to the image `subject` (a descriptor)."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact_type,
        "config": descriptor(EMPTY, b"{}"),
        "layers": [descriptor(artifact_type, document)],
        "subject": {key: subject[key] for key in ("mediaType", "digest", "size")},
    }


def encode(document: Mapping[str, Any]) -> bytes:
    """Canonical bytes. Raises ArtifactError for text that is not UTF-8: JSON cannot hold it."""
    try:
        data = canonical(document)
        data.decode()
    except UnicodeDecodeError as error:
        raise ArtifactError("an OCI document would hold text that is not UTF-8", code="not-utf8", found=str(error), expected="UTF-8") from None
    return data
