"""Models: a local directory or a hub id becomes a `spec.Model`, before anything heavy happens.

`resolve` asks for little (commit, file list, config.json) and tells a missing token, a licence that was not accepted and a model that does not exist
apart; `fetch` downloads the rest later. Tokens are read from the environment or the hub's own token file and never appear in any text.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.errors import MachineError, UsageError, WarmupError
from baker.hub_access import Hub, explained
from baker.modeldir import WEIGHTS, check_config, check_weights, describe
from baker.spec import Model

_ID = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FOREIGN = (".h5", ".msgpack", ".onnx", ".onnx_data", ".tflite", ".ot")  # weights of other frameworks: nothing here reads them
_TIMEOUT_S = 15.0  # for one answer of the hub, not for a download


def resolve(model: str, served: str | None = None, weights: str = "real", hub: Hub | None = None) -> Model:
    """Resolve a directory or a hub id `[ORG/]NAME[@REV]`.

    A directory must hold config.json and, for real weights, weight files; its `served` string is its absolute path unless given. A hub id is
    resolved to a commit and its config.json is fetched, which proves access. Raises UsageError for a malformed id or directory, WarmupError when
    the model cannot be had (`retryable` where the same command may succeed later).
    """
    if _is_directory(model):
        path = Path(model).expanduser()
        path = path.resolve() if ".." in path.parts else path.absolute()  # the string is part of the caches' key: links stay as they were given
        files = describe(path)
        check_config(path)
        if weights == "real":
            check_weights(path, list(files))
        return Model(source=model, path=path, served=served or str(path), files=files)
    name, revision = _split(model)
    hub = hub or Hub.from_env()
    commit = _cached_commit(hub, name, revision) if hub.offline else _online_commit(hub, name, revision, weights)
    path = hub.cache / ("models--" + name.replace("/", "--")) / "snapshots" / commit
    check_config(path, of=model)
    return Model(source=name, path=path, served=served or name, commit=commit)


def fetch(model: Model, weights: str = "real", hub: Hub | None = None) -> Path:
    """Make every file of a hub model present and return the directory; weights only for "real", and of those one format.

    A directory is returned as it is. Interrupted downloads go on where they stopped. Raises MachineError for a full disk (bytes needed and free),
    WarmupError when the hub fails or the cached snapshot is not whole.
    """
    if not model.commit:
        return model.path
    from huggingface_hub import snapshot_download

    hub = hub or Hub.from_env()
    cached = [entry.relative_to(model.path).as_posix() for entry in model.path.rglob("*")]
    sizes = dict.fromkeys(cached, 0) if hub.offline else _sizes(hub, model)
    unwanted = tuple(_unwanted(list(sizes), weights))
    _check_space(hub, model, {name: size for name, size in sizes.items() if not name.endswith(unwanted)})
    with explained(hub, model.source, model.commit):
        path = Path(
            snapshot_download(
                model.source,
                revision=model.commit,
                cache_dir=hub.cache,
                endpoint=hub.endpoint,
                token=hub.token or False,
                local_files_only=hub.offline,
                ignore_patterns=[f"*{suffix}" for suffix in unwanted],
            )
        )
    if weights == "real":
        check_weights(path, [entry.relative_to(path).as_posix() for entry in path.rglob("*") if entry.is_file()], of=model.source)
    return path


def locate(identity: Mapping[str, Any], source: str, served: str, given: Path | None = None, hub: Hub | None = None) -> Model:
    """The model of an existing plan on this machine, for a proof: `identity` is `Model.identity()` as the manifest holds it.

    A hub model is looked for in the cache (`fetch` completes it); a directory where `given`, `source` or the served string says. Raises UsageError
    for a directory that is gone or whose files are not those that were baked, naming them.
    """
    if "commit" in identity:
        name, commit = str(identity["repo"]), str(identity["commit"])
        path = given or (hub or Hub.from_env()).cache / ("models--" + name.replace("/", "--")) / "snapshots" / commit
        return Model(source=name, path=path, served=served, commit=commit)
    places = [given] if given else [Path(source), Path(served)]
    path = next((place for place in places if os.path.isdir(place)), places[0]).absolute()  # noqa: PTH112 - Path.is_dir raises for a long name
    files = describe(path)
    baked = dict(identity["files"])
    wrong = sorted(name for name in {*baked, *files} if baked.get(name) != files.get(name))
    if wrong:
        raise UsageError(
            f"{path} is not the model that was baked",
            code="model-differs",
            found=", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            expected="the files that the manifest lists, with the same content",
            remedy="point at the directory that was baked, or build again",
        )
    return Model(source=source, path=path, served=served, files=files)


def _is_directory(model: str) -> bool:
    return bool(model) and (model.startswith(("/", "./", "../", "~")) or model in (".", "..") or model.endswith("/") or os.path.isdir(model))  # noqa: PTH112 - Path.is_dir raises for a name that is too long


def _split(model: str) -> tuple[str, str]:
    """Split `ORG/NAME@REV`; the rules are those of the hub's own client (at most one slash, 96 characters, no `--`, `..`, `.git`)."""
    name, at, revision = model.partition("@")
    wrong = not _ID.fullmatch(name) or len(name) > 96 or "--" in name or ".." in name or name.endswith((".git", "-", "."))
    if wrong or (at and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", revision)):
        raise UsageError(
            f"{model!r} is neither a directory nor a model id",
            code="bad-model",
            found=model or "nothing",
            expected="ORG/NAME, ORG/NAME@REVISION, or an existing directory",
            remedy="write a directory as ./NAME or with its full path" if "/" not in model.strip("/") else "check the spelling",
        )
    return name, revision or "main"


def _api(hub: Hub) -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub.endpoint, token=hub.token or False)


def _online_commit(hub: Hub, name: str, revision: str, weights: str) -> str:
    """Commit of a revision, with config.json in the cache. Metadata of a gated model is public: only the file itself shows whether we may have it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    with explained(hub, name, revision):
        info = _api(hub).model_info(name, revision=revision, timeout=_TIMEOUT_S)
        url = hf_hub_url(name, "config.json", revision=revision, endpoint=hub.endpoint)
        token = hub.token or False
        get_hf_file_metadata(url, token=token, timeout=_TIMEOUT_S, endpoint=hub.endpoint)
        # By the revision, not the commit: the client then notes which commit the name stands for, and a server without network finds it.
        file = hf_hub_download(
            name, "config.json", revision=revision, cache_dir=hub.cache, endpoint=hub.endpoint, token=token, etag_timeout=_TIMEOUT_S
        )
        commit = Path(file).parent.name
    files = [sibling.rfilename for sibling in info.siblings or []]
    if weights == "real" and not any(file.endswith(WEIGHTS) for file in files):
        raise WarmupError(
            f"model {name} holds no weights",
            code="model-no-weights",
            found=f"{len(files)} other files",
            expected="one of " + ", ".join("*" + suffix for suffix in WEIGHTS),
            remedy="pass --weights dummy to bake without them: the caches do not depend on the values",
        )
    return commit


def _cached_commit(hub: Hub, name: str, revision: str) -> str:
    """Commit of a revision from the cache alone: a full commit as it is, a branch by the `refs` file that the hub's client keeps."""
    folder = hub.cache / ("models--" + name.replace("/", "--"))
    commit = revision
    if not _COMMIT.fullmatch(revision):
        ref = folder / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else ""
    if not commit or not (folder / "snapshots" / commit / "config.json").is_file():
        raise WarmupError(
            f"model {name}@{revision} is not in the cache, and the hub may not be asked",
            code="model-not-cached",
            found=f"HF_HUB_OFFLINE is set; nothing for it under {folder}",
            expected="a cached snapshot with config.json",
            remedy="unset HF_HUB_OFFLINE, or fill the cache where the network is and point HF_HUB_CACHE at it",
        )
    return commit


def _sizes(hub: Hub, model: Model) -> dict[str, int]:
    """Bytes of each file of the commit."""
    with explained(hub, model.source, model.commit):
        info = _api(hub).model_info(model.source, revision=model.commit, files_metadata=True, timeout=_TIMEOUT_S)
    return {sibling.rfilename: int(sibling.size or 0) for sibling in info.siblings or []}


def _unwanted(files: Sequence[str], weights: str) -> list[str]:
    """Suffixes that the download leaves out: all weights for "dummy"; else every format but the first one present at the top level."""
    top = [file for file in files if "/" not in file]
    chosen = next((suffix for suffix in WEIGHTS if any(file.endswith(suffix) for file in top)), None)
    if weights == "real" and chosen is None:
        return [*_FOREIGN]
    return [suffix for suffix in WEIGHTS if weights == "dummy" or suffix != chosen] + [*_FOREIGN]


def _check_space(hub: Hub, model: Model, wanted: Mapping[str, int]) -> None:
    needed = sum(size for name, size in wanted.items() if not (model.path / name).exists())
    there = next(folder for folder in (hub.cache, *hub.cache.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise MachineError(
            f"no space for model {model.source} in {hub.cache}",
            code="no-space",
            found=f"{free} bytes free",
            expected=f"{needed} bytes",
            remedy="free some space, or point HF_HUB_CACHE at a larger disk",
            needed=needed,
            free=free,
        )
