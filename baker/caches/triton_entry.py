"""One entry of Triton's cache, read without Triton: group file, metadata, cubin. Nothing is executed."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches.cubin import NotCubinError, read_capability, read_toolkit
from baker.caches.plain import printable, regular
from baker.inside.finding import Finding
from baker.inside.inventory import shown

KIND = "triton"
GROUP = "__grp__"
AGAIN = "bake again; --allow-partial leaves the file out"
_LIMIT = 1 << 20  # bytes of a JSON file; real ones have a few thousand


def _json(path: Path) -> Any:
    """A parsed JSON object. Raises ValueError that says what is wrong, OSError."""
    if path.stat().st_size > _LIMIT:
        raise ValueError(f"larger than {_LIMIT} bytes")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(document, dict):
        raise ValueError(f"{type(document).__name__}, not an object")
    return document


def _finding(code: str, text: str, found: Any = None, expected: Any = None, remedy: str = AGAIN) -> Finding:
    return Finding(code, "hard", KIND, printable(text), found, expected, remedy)


def key_of(digest: str) -> str:
    """Directory name of a hex sha256: base32 without padding. Raises ValueError."""
    return base64.b32encode(bytes.fromhex(digest)).decode("ascii").rstrip("=")


def problems(root: Path, key: str, names: Sequence[str]) -> list[Finding]:
    """What is wrong with the entry `key`; a module built by the C compiler has no group and no metadata."""
    groups = [name for name in names if name.startswith(GROUP)]
    metadata = [name for name in names if name.endswith(".json") and not name.startswith(GROUP) and not name.endswith(".autotune.json")]
    if not groups and not metadata and any(name.endswith((".so", ".autotune.json")) for name in names):
        return []
    if not groups:
        return [_finding("triton-partial", f"{key} has no {GROUP}*.json: Triton would never find it", ", ".join(sorted(names)[:4]), "a group file")]
    found: list[Finding] = []
    for name in groups:
        found += _group(root, key, name, names)
    for name in metadata:
        found += _metadata(root, key, name, names)
    return found


def children(root: Path, key: str, group: str) -> Mapping[str, str]:
    """File name -> absolute path, as a group file lists them. Raises ValueError, OSError."""
    paths = _json(root / key / group).get("child_paths")
    if not isinstance(paths, dict) or not all(isinstance(value, str) for value in paths.values()):
        raise ValueError("no child_paths of strings")
    return paths


def _group(root: Path, key: str, group: str, names: Sequence[str]) -> list[Finding]:
    try:
        paths = children(root, key, group)
    except (ValueError, OSError) as error:
        return [_finding("triton-damaged", f"{key}/{group} is no group file: {error}", str(error), "JSON with child_paths")]
    stem = group[len(GROUP) : -len(".json")]
    unlisted = [name for name in (f"{stem}.json", f"{stem}.cubin") if name not in paths and (name.endswith(".json") or name in names)]
    if unlisted:
        text = f"{key}/{group} does not list {unlisted[0]}: Triton would miss the entry, or crash on it"
        return [_finding("triton-partial", text, ", ".join(map(shown, sorted(paths)[:4])), unlisted[0])]
    missing = sorted(name for name in paths if name not in names)
    if missing:
        text = f"{key}/{group} is the list of files that are not all there: {', '.join(map(shown, missing[:3]))}"
        return [_finding("triton-partial", text, f"{len(paths) - len(missing)} of {len(paths)}", "all")]
    wrong = sorted(path for name, path in paths.items() if not path.endswith(f"/{key}/{name}"))
    return [_finding("triton-elsewhere", f"{key}/{group} is of another entry", shown(wrong[0]), f"a path that ends in {key}")] if wrong else []


def _metadata(root: Path, key: str, name: str, names: Sequence[str]) -> list[Finding]:
    try:
        document = _json(root / key / name)
        expected = key_of(str(document.get("hash", "")))
    except (ValueError, OSError) as error:
        return [_finding("triton-damaged", f"{key}/{name} is no metadata: {error}", str(error), "JSON with a hash")]
    if expected != key:
        return [_finding("triton-elsewhere", f"{key}/{name} is of another entry", expected, key)]
    cubin = name[: -len(".json")] + ".cubin"
    arch = architecture(document)
    if cubin not in names or not arch:
        return []
    try:
        here = read_capability(root / key / cubin)
    except (NotCubinError, OSError) as error:
        return [_finding("triton-damaged", f"{key}/{cubin} is no cubin: {error}", str(error), "CUDA device code")]
    text = f"{key}/{cubin} is code for sm_{here}, and its metadata says sm_{arch}"
    return [_finding("triton-arch", text, here, arch)] if here != arch else []


def architecture(document: Mapping[str, Any]) -> int:
    """The SM number of a CUDA entry's metadata; 0 for other backends or when it is not told."""
    target = document.get("target")
    arch = target.get("arch") if isinstance(target, dict) and target.get("backend") == "cuda" else 0
    if isinstance(arch, str) and re.fullmatch(r"[0-9]{2,3}", arch):
        return int(arch)
    return int(arch) if isinstance(arch, (int, float)) and not isinstance(arch, bool) and 0 < arch < 1000 else 0


def _documents(root: Path) -> list[Mapping[str, Any]]:
    found = []
    for path in regular(root, "*/*.json"):
        if not path.name.startswith(GROUP) and not path.name.endswith(".autotune.json"):
            try:
                found.append(_json(path))
            except (ValueError, OSError):
                continue  # `problems` names it
    return found


def factors(root: Path) -> dict[str, Any]:
    """{"kernels": n, "architectures": [...], "versions": [...]} of a whole tree."""
    documents = _documents(root)
    architectures = sorted({f"sm_{arch}" for document in documents if (arch := architecture(document))})
    versions = sorted({shown(str(version)) for document in documents if (version := document.get("triton_version"))})
    toolkits = sorted({major for path in regular(root, "*/*.cubin") if (major := read_toolkit(path))})
    found = {"kernels": len(documents), "architectures": architectures, "versions": versions, "toolkits": toolkits}
    return {**found, "directories": sorted(map(shown, directories(root)))}


def directories(root: Path) -> set[str]:
    """Where the group files say that their entries lie."""
    tops: set[str] = set()
    for path in regular(root, f"*/{GROUP}*.json"):
        key = path.parent.name
        try:
            tops |= {listed[: -len(f"/{key}/{name}")] for name, listed in children(root, key, path.name).items() if listed.endswith(f"/{key}/{name}")}
        except (ValueError, OSError):
            continue  # `problems` names it
    return tops


def whole(root: Path, entries: Mapping[str, Sequence[str]]) -> list[Finding]:
    """What only shows over all entries: files listed under several cache directories, code for several architectures."""
    tops = directories(root)
    found = []
    if len(tops) > 1 or any(not top.endswith(f"/live/{KIND}") for top in tops):
        text = "entries list their files in directories that are not the one directory of live: they would be read from there, or missed"
        found.append(_finding("triton-path", text, ", ".join(sorted(map(shown, tops))[:3]), f"…/live/{KIND}", "bake again from an empty root"))
    architectures = factors(root)["architectures"]
    if len(architectures) > 1:
        text = "the tree holds code for several architectures: it is not of one bake"
        found.append(_finding("triton-mixed", text, ", ".join(architectures), "one", "bake again from an empty root"))
    return found
