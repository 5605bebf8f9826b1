"""References of this version: `scratch` and `oci:DIR[:TAG]`; what comes later is refused by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from baker.errors import UsageError

DEFAULT_TAG = "latest"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # OCI distribution specification, "Pulling manifests"
ACCEPTED = "oci:DIR[:TAG]"


@dataclass(frozen=True, slots=True)
class LayoutReference:
    """A directory that holds an OCI image layout, and a tag in it ("" when none was given)."""

    directory: Path
    tag: str = ""

    def __str__(self) -> str:
        return f"oci:{self.directory}:{self.tag}" if self.tag else f"oci:{self.directory}"


def check_tag(tag: str) -> str:
    """`tag`, if a registry would take it too. Raises UsageError."""
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"not a tag: {tag!r}",
            code="bad-tag",
            found=tag,
            expected="letters, digits, '.', '_', '-'; up to 128, not starting with '.' or '-'",
            remedy="choose another tag, or end a directory whose name holds a colon with '/'",
        )
    return tag


def parse(text: str, accepted: str = ACCEPTED) -> LayoutReference:
    """Parse `oci:DIR[:TAG]`: the last colon after the last slash separates the tag, so `oci:./a:b/` is the directory `a:b`. Raises UsageError."""
    scheme, colon, rest = text.partition(":")
    if scheme != "oci" or not colon:
        kind = "Docker engine" if scheme == "docker" else "registry"
        raise UsageError(
            f"{text!r}: {kind} references are not in this version",
            code="unsupported-reference",
            found=text,
            expected=accepted,
            remedy="copy the image into an OCI layout first, for example: skopeo copy docker://IMAGE oci:DIR:TAG",
        )
    parent, slash, last = rest.rpartition("/")
    name, colon, tag = last.rpartition(":")
    if not colon:
        name, tag = last, ""
    directory = parent + slash + name
    if not directory or "\0" in directory:
        raise UsageError(f"{text!r} names no directory", code="bad-reference", found=text, expected=accepted, remedy="name a directory after oci:")
    return LayoutReference(Path(directory), check_tag(tag) if colon else "")
