"""What a model directory holds: its files, its config.json, and whether its weights are all there. Nothing in it is executed or unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.errors import BakerError, UsageError, WarmupError

# In the order in which servers prefer them; told by name and size only, because hashing hundreds of gigabytes would cost more than the bake.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_CONFIG_LIMIT = 16 << 20  # bytes; the largest config.json files (quantisation tables) stay under 2 MB


def describe(path: Path) -> dict[str, str | int]:
    """Files below `path`, POSIX names: sha256 (hex) of each non-weight file, size (bytes) of each weight file.

    Links are resolved; hidden files and directories are left out (tools keep download state there, servers read none of it). Raises UsageError for a
    directory that is missing or unreadable, and for a link or file that cannot be read, naming it.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        found = "a file" if os.path.exists(path) else "a broken link" if os.path.islink(path) else "nothing"  # noqa: PTH110, PTH114
        raise UsageError(
            f"model directory {path} is not there",
            code="model-dir-missing",
            found=found,
            expected="a directory with config.json",
            remedy="check the path",
        )
    files: dict[str, str | int] = {}
    for name, file in _walk(path):
        try:
            files[name] = _value(name, file)
        except OSError as error:
            raise _unreadable(path, name, file, error) from None
    return dict(sorted(files.items()))


def _walk(path: Path) -> Iterator[tuple[str, Path]]:
    seen: set[str] = set()

    def refuse(error: OSError) -> None:
        raise _unreadable(path, os.path.relpath(error.filename, path), Path(error.filename), error)

    for folder, folders, names in os.walk(path, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real in seen:
            continue  # a directory link back up would go round for ever
        seen.add(real)
        for name in sorted(names):
            if not name.startswith("."):
                file = Path(folder, name)
                yield file.relative_to(path).as_posix(), file


def _value(name: str, file: Path) -> str | int:
    """sha256 or size of one regular file; never opens anything else, a pipe would block for ever."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "not a regular file")
    if name.endswith(WEIGHTS):
        return status.st_size
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unreadable(path: Path, name: str, file: Path, error: OSError) -> UsageError:
    found = error.strerror or "unreadable"
    if file.is_symlink() and not file.exists():
        found = f"a broken link to {file.readlink()}"
    return UsageError(
        f"model directory {path}: {name} cannot be read: {found}",
        code="model-file-unreadable",
        found=found,
        expected="a regular file",
        remedy="repair or remove it; a link into a hub cache needs that cache on this machine",
    )


def check_config(path: Path, of: str = "") -> Mapping[str, Any]:
    """The parsed config.json of a model directory. Raises UsageError (WarmupError for a hub model `of`) when it is missing or no JSON object."""
    file = path / "config.json"
    kind: type[BakerError] = WarmupError if of else UsageError
    expected = "a config.json with a JSON object, as the transformers library writes it"
    try:
        with file.open("rb") as stream:
            data = stream.read(_CONFIG_LIMIT + 1)
        document = json.loads(data.decode("utf-8")) if len(data) <= _CONFIG_LIMIT else None
    except OSError as error:
        raise kind(f"model {of or path}: no config.json", code="model-no-config", found=error.strerror or str(error), expected=expected) from None
    except (ValueError, RecursionError) as error:
        raise kind(f"model {of or path}: config.json is not JSON", code="model-bad-config", found=str(error)[:200], expected=expected) from None
    if not isinstance(document, dict):
        found = type(document).__name__ if len(data) <= _CONFIG_LIMIT else f"more than {_CONFIG_LIMIT} bytes"
        raise kind(f"model {of or path}: config.json holds no object", code="model-bad-config", found=found, expected=expected)
    return document


def check_weights(path: Path, files: Sequence[str], of: str = "") -> None:
    """Raise UsageError (WarmupError for a hub model `of`) when no weight file is there, one is empty, or an index names a shard that is missing."""
    problem = _weights_problem(path, files)
    if problem:
        kind: type[BakerError] = WarmupError if of else UsageError
        message, found, expected = problem
        remedy = "get them again, or pass --weights dummy to bake without: the caches do not depend on the values"
        raise kind(f"model {of or path} {message}", code="model-no-weights", found=found, expected=expected, remedy=remedy)


def _weights_problem(path: Path, files: Sequence[str]) -> tuple[str, str, str] | None:
    """Message, found and expected of the first thing wrong with the weights."""
    weights = [name for name in files if name.endswith(WEIGHTS)]
    if not weights:
        return "holds no weights", f"{len(files)} other files", "one of " + ", ".join(f"*{suffix}" for suffix in WEIGHTS)
    for name in weights:
        if not (path / name).stat().st_size:
            return f"has an empty weight file {name}", "0 bytes", "weights"
    formats = {Path(name).suffix for name in weights}
    for index in (name for name in files if name.endswith(".index.json") and Path(name.removesuffix(".index.json")).suffix in formats):
        folder = Path(index).parent
        missing = sorted({(folder / shard).as_posix() for shard in _shards(path / index)} - set(files))
        if missing:
            found = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "") + " missing"
            return f"lacks {len(missing)} weight files that {index} names", found, "every shard of the index"
    return None


def _shards(index: Path) -> list[str]:
    try:
        shards = json.loads(index.read_bytes())["weight_map"].values()
        return [str(shard) for shard in shards]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{index} is no index of weights",
            code="model-no-weights",
            found=f"{type(error).__name__}: {error}"[:200],
            expected='{"weight_map": {tensor: file}}',
            remedy="copy the model again",
        ) from None
