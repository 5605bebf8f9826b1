"""Types of JSON documents that nobody vouches for: checked once where they are read, so that the code behind may trust them.

A shape is a type, a tuple of types, `[shape]` for a list, `{"*": shape}` for a map, or `{"key": shape, "key!": shape}` for an object, where `!` marks
a key that must be there. Other keys are allowed, and null counts as absent (Go programs write it for empty).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baker.errors import ArtifactError

NUMBER = (int, float)
TEXTS = {"*": str}
_BLOB = {"digest!": str, "size!": int}

MANIFEST: dict[str, Any] = {
    "mediaType": str,
    "config!": _BLOB,
    "layers!": [{**_BLOB, "mediaType": str, "annotations": TEXTS}],
    "annotations": TEXTS,
}
CONFIG: dict[str, Any] = {
    "architecture": str,
    "os": str,
    "config": {"Env": [str], "Labels": TEXTS, "Entrypoint": [str], "Cmd": [str], "Volumes": dict, "User": str},
    "rootfs": {"diff_ids": [str]},
    "history": [dict],
}
REFERRER: dict[str, Any] = {"subject": {"digest": str}, "layers!": [_BLOB]}


def mismatch(value: Any, shape: Any, where: str = "$") -> str:
    """What first differs from the shape, with its place; "" when nothing does."""
    if isinstance(shape, dict):
        return _object(value, shape, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _says(value, "a list", where)
        return next((found for i, item in enumerate(value) if (found := mismatch(item, shape[0], f"{where}[{i}]"))), "")
    if not isinstance(value, shape) or isinstance(value, bool):
        types = shape if isinstance(shape, tuple) else (shape,)
        return _says(value, " or ".join(kind.__name__ for kind in types), where)
    return ""


def _object(value: Any, shape: Mapping[str, Any], where: str) -> str:
    if not isinstance(value, dict):
        return _says(value, "an object", where)
    if "*" in shape:
        return next((found for key, item in value.items() if (found := mismatch(item, shape["*"], f"{where}.{key}"))), "")
    for key, inner in shape.items():
        name = key.removesuffix("!")
        if value.get(name) is None:
            if key.endswith("!"):
                return f"{where}.{name}: absent"
        elif found := mismatch(value[name], inner, f"{where}.{name}"):
            return found
    return ""


def _says(value: Any, expected: str, where: str) -> str:
    return f"{where}: found {type(value).__name__}, expected {expected}"


def require(document: Mapping[str, Any], shape: Any, what: str) -> Mapping[str, Any]:
    """The document, if it has the shape. Raises ArtifactError that names the place."""
    if found := mismatch(document, shape):
        raise ArtifactError(
            f"{what} is malformed: {found}",
            code="document-malformed",
            found=found,
            expected="a document of the published format (docs/artifact-spec.md, OCI image specification)",
            remedy="do not use this image; build or copy it again",
        )
    return document
