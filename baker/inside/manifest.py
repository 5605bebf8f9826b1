"""The manifest: what an image holds, what it needs, and how each file must look.

Rules
- canonical JSON: UTF-8, sorted keys, no blanks (`canonical`); the sha256 of those bytes is the manifest digest in the image's ENV;
- unknown fields are kept: `raw` holds the parsed document, the dataclasses are views on it;
- anything malformed raises ManifestError with a JSON path; nothing else escapes from `parse`.
Sizes are bytes, times nanoseconds since the epoch, modes octal strings ("0444").
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

SCHEMA = 1

# How `BAKER_VERIFY=code` treats a file: "inert" is skipped, everything else is hashed (design 5.4).
ROLES = ("code", "inert")
SEVERITIES = ("hard", "soft")
# Row operators; an unknown one hides the kind.
OPERATORS = ("eq", "ge", "le", "in", "prefix", "superset", "present")


class ManifestError(ValueError):
    """The manifest is not what it must be; the text names the JSON path, what was found and what was expected."""


def canonical(document: Any) -> bytes:
    """Canonical JSON bytes: UTF-8, sorted keys, no blanks, no NaN. Raises ValueError for NaN or infinity."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogateescape")


def digest(data: bytes) -> str:
    """`sha256:<64 hex>` of the bytes, the form of the OCI image specification."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class FileEntry(NamedTuple):
    """One pristine regular file of a kind; `path` is relative to the kind's root, with '/' separators.

    A tuple, because `start` makes one for each file while a server waits: a frozen dataclass costs four times as much (measured).
    """

    path: str
    size: int
    sha256: str
    mode: str = "0444"
    role: str = "code"
    mtime_ns: Optional[int] = None


@dataclass(frozen=True)
class Row:
    """One requirement: `facts[fact] op value`, or the kind stays out of sight (hard) or is shown with a remark (soft)."""

    fact: str
    op: str
    value: Any
    severity: str
    owner: str
    remedy: str


@dataclass(frozen=True)
class Pattern:
    """An fnmatch pattern over paths that may be new or change, and why. None may match code (contract test)."""

    pattern: str
    reason: str


@dataclass(frozen=True)
class Kind:
    """One family of cache files in one set."""

    name: str
    variables: Dict[str, str]
    rows: Tuple[Row, ...]
    files: Tuple[FileEntry, ...]
    mutable: Tuple[Pattern, ...] = ()
    copy: Tuple[str, ...] = ()
    directories: Tuple[str, ...] = ()
    factors: Mapping[str, Any] = field(default_factory=dict)
    path_bound: bool = False
    entry_depth: int = 0  # leading components of a path that make an entry of its own; 0: the kind is one whole


@dataclass(frozen=True)
class CacheSet:
    """The caches of one target: how it was baked (strategy, builder facts, serve command) and its kinds, in layer order."""

    name: str
    target: Mapping[str, Any]
    strategy: Mapping[str, Any]
    builder: Mapping[str, Any]
    serve: Mapping[str, Any]
    neutral: Mapping[str, Any]
    kinds: Tuple[Kind, ...]
    raw: Mapping[str, Any] = field(default_factory=dict)  # with fields that this version does not know


@dataclass(frozen=True)
class Manifest:
    """A parsed manifest; `raw` keeps fields that this version does not know."""

    root: str
    plan: Mapping[str, Any]
    sets: Tuple[CacheSet, ...]
    raw: Mapping[str, Any]

    def bytes(self) -> bytes:
        """Canonical bytes of the whole document, unknown fields included."""
        return canonical(self.raw)


def _get(doc: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:
    if key not in doc:
        raise ManifestError("%s.%s: missing" % (where, key))
    value = doc[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = kind.__name__ if isinstance(kind, type) else "/".join(k.__name__ for k in kind)
        raise ManifestError("%s.%s: found %s, expected %s" % (where, key, type(value).__name__, wanted))
    return value


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ManifestError("%s: found %s, expected object" % (where, type(value).__name__))
    return value


_UNSAFE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def safe_path(path: str, where: str) -> str:
    """Return `path` if it is relative, normalised and stays inside its root; raises ManifestError otherwise."""
    if _UNSAFE.search(path):
        raise ManifestError("%s: path %r leaves its root or is not normalised" % (where, path))
    return path


def _file(doc: Any, where: str) -> FileEntry:
    if isinstance(doc, dict):
        path, size, sha, mtime = doc.get("path"), doc.get("size"), doc.get("sha256"), doc.get("mtime_ns")
        if (
            type(path) is str
            and type(size) is int
            and type(sha) is str
            and (mtime is None or type(mtime) is int)
            and size >= 0
            and _SHA256.fullmatch(sha)
            and not _UNSAFE.search(path)
        ):
            return FileEntry(path, size, sha, str(doc.get("mode", "0444")), str(doc.get("role", "code")), mtime)
    raise _bad_file(doc, where)


def _bad_file(doc: Any, where: str) -> ManifestError:
    """What is wrong with a file entry; found again step by step, so that the good ones cost little."""
    doc = _object(doc, where)
    safe_path(_get(doc, "path", str, where), where)
    sha = _get(doc, "sha256", str, where)
    if not _SHA256.fullmatch(sha):
        return ManifestError("%s.sha256: found %r, expected 64 hex digits" % (where, sha))
    size = _get(doc, "size", int, where)
    if size < 0:
        return ManifestError("%s.size: found %d, expected >= 0" % (where, size))
    return ManifestError("%s.mtime_ns: found %s, expected int" % (where, type(doc.get("mtime_ns")).__name__))


def _row(doc: Any, where: str) -> Row:
    doc = _object(doc, where)
    return Row(
        _get(doc, "fact", str, where),
        _get(doc, "op", str, where),
        doc.get("value"),
        _get(doc, "severity", str, where),
        str(doc.get("owner", "")),
        str(doc.get("remedy", "")),
    )


def _pattern(doc: Any, where: str) -> Pattern:
    doc = _object(doc, where)
    return Pattern(_get(doc, "pattern", str, where), _get(doc, "reason", str, where))


def _items(doc: Mapping[str, Any], key: str, where: str) -> List[Tuple[Any, str]]:
    value = doc.get(key, [])
    if not isinstance(value, list):
        raise ManifestError("%s.%s: found %s, expected list" % (where, key, type(value).__name__))
    return [(item, "%s.%s[%d]" % (where, key, i)) for i, item in enumerate(value)]


def _files(doc: Mapping[str, Any], where: str) -> Tuple[FileEntry, ...]:
    items = doc.get("files", [])
    if not isinstance(items, list):
        raise ManifestError("%s.files: found %s, expected list" % (where, type(items).__name__))
    files = []
    for number, item in enumerate(items):
        try:
            files.append(_file(item, ""))
        except ManifestError:
            raise _bad_file(item, "%s.files[%d]" % (where, number)) from None
    if len({entry.path for entry in files}) != len(files):
        seen = set()  # type: set[str]
        for entry in files:
            if entry.path in seen:
                raise ManifestError("%s.files: %r stands twice" % (where, entry.path))
            seen.add(entry.path)
    return tuple(files)


def _depth(doc: Mapping[str, Any], where: str) -> int:
    depth = _get(doc, "entry_depth", int, where) if "entry_depth" in doc else 0
    if depth < 0:
        raise ManifestError("%s.entry_depth: found %d, expected >= 0" % (where, depth))
    return int(depth)


def _kind(doc: Any, where: str) -> Kind:
    doc = _object(doc, where)
    variables = _object(doc.get("variables", {}), where + ".variables")
    files = _files(doc, where)
    return Kind(
        name=safe_path(_get(doc, "name", str, where), where),
        variables={str(k): str(v) for k, v in variables.items()},
        rows=tuple(_row(item, w) for item, w in _items(doc, "rows", where)),
        files=files,
        mutable=tuple(_pattern(item, w) for item, w in _items(doc, "mutable", where)),
        copy=tuple(str(item) for item, _ in _items(doc, "copy", where)),
        directories=tuple(safe_path(str(item), w) for item, w in _items(doc, "directories", where)),
        factors=_object(doc.get("factors", {}), where + ".factors"),
        path_bound=bool(doc.get("path_bound", False)),
        entry_depth=_depth(doc, where),
    )


def _set(doc: Any, where: str) -> CacheSet:
    doc = _object(doc, where)
    name = safe_path(_get(doc, "name", str, where), where)
    if "/" in name:
        raise ManifestError("%s.name: found %r, expected one path component" % (where, name))
    return CacheSet(
        name=name,
        target=_object(doc.get("target", {}), where + ".target"),
        strategy=_object(doc.get("strategy", {}), where + ".strategy"),
        builder=_object(doc.get("builder", {}), where + ".builder"),
        serve=_object(doc.get("serve", {}), where + ".serve"),
        neutral=_object(doc.get("neutral", {}), where + ".neutral"),
        kinds=tuple(_kind(item, w) for item, w in _items(doc, "kinds", where)),
        raw=doc,
    )


def parse(data: bytes) -> Manifest:
    """Parse manifest bytes. Raises ManifestError for anything that is not a manifest of a schema that this code knows."""
    try:
        doc = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise ManifestError("$: not JSON: %s" % error) from None
    doc = _object(doc, "$")
    schema = _get(doc, "schema", int, "$")
    if schema != SCHEMA:
        raise ManifestError("$.schema: found %d, expected %d; use the baker version that made the image" % (schema, SCHEMA))
    root = _get(doc, "root", str, "$")
    if not root.startswith("/"):
        raise ManifestError("$.root: found %r, expected an absolute path" % root)
    sets = tuple(_set(item, w) for item, w in _items(doc, "sets", "$"))
    if not sets:
        raise ManifestError("$.sets: empty, expected at least one set")
    names = [cache_set.name for cache_set in sets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ManifestError("$.sets: %r stands twice" % twice[0])
    return Manifest(root=root, plan=_object(doc.get("plan", {}), "$.plan"), sets=sets, raw=doc)
