"""The contract of an image engine: where images come from and go to. One file in this folder, one line in `ALL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from baker.pack.ground import Ground
from baker.pack.layer import Layer
from baker.spec import Digest

__all__ = ["Base", "Engine", "Image", "Layer", "Recipe"]


@dataclass(frozen=True, slots=True)
class Base:
    """A resolved base image. For `scratch` the digest is empty and the config bare."""

    reference: str
    digest: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[Mapping[str, Any]] = ()  # OCI descriptors, referenced unchanged
    created: int = 0  # seconds since the epoch
    blobs: Path | None = None  # directory with the layers' blobs; None where the engine fetches them itself, and for scratch


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides an image's bytes."""

    base: Base
    layers: Sequence[Layer]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    entrypoint: Sequence[str]
    cmd: Sequence[str]
    created: int  # seconds since the epoch; SOURCE_DATE_EPOCH, else the base's, else 0


@dataclass(frozen=True, slots=True)
class Image:
    """A built or read image: manifest digest, config, layer descriptors and how to get their bytes."""

    reference: str
    digest: Digest
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    blobs: Path  # directory of sha256/<hex>


class Engine(Protocol):
    """Where images come from and go to."""

    name: str

    def resolve(self, reference: str) -> Base:
        """Resolve `--base`. Raises UsageError for a form that this engine does not take, ArtifactError for a damaged image."""
        ...

    def ground(self, base: Base, root: str) -> Ground:
        """What the base has on the way to the root. Raises ArtifactError for a link, file or volume there, and when the root is taken."""
        ...

    def accept(self, destination: str) -> None:
        """Refuse now what `build` would refuse after the warm-up: reference, tag, a place that is no layout. Raises UsageError; makes nothing."""
        ...

    def build(self, recipe: Recipe, destination: str, tag: str) -> Image:
        """Write the image into `destination` (for `oci`: `oci:DIR`). Nothing becomes visible before it is whole."""
        ...

    def publish(
        self, recipe: Recipe, directory: str, tags: Sequence[str], documents: Sequence[tuple[str, bytes]], expected: Mapping[str, str]
    ) -> Image:
        """`build` under several tags with documents attached, (artifact type, bytes) each: all of it becomes visible at once, or nothing.

        `expected`: tag -> digest that it must still name, "" for none. Raises ArtifactError `output-changed` when another build was there first.
        """
        ...

    def read(self, reference: str) -> Image:
        """Open an existing image and check its manifest and config against their digests."""
        ...

    def attach(self, image: Image, artifact_type: str, document: bytes) -> Digest:
        """Store `document` as a referrer of the image (an OCI manifest with `subject`), replacing none."""
        ...

    def referrers(self, image: Image, artifact_type: str) -> Sequence[tuple[Digest, bytes]]:
        """Documents attached to the image, oldest first."""
        ...
