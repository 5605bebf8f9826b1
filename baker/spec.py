"""Frozen domain types that every layer above shares. They hold no I/O; parse at the edge, trust afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NewType

from baker.errors import UsageError
from baker.inside.manifest import Pattern

Digest = NewType("Digest", str)  # sha256:… of compressed bytes, or of a manifest or config blob
DiffId = NewType("DiffId", str)  # sha256:… of an uncompressed layer

# Compute capabilities that CUDA 13 toolchains compile for (Volta is gone there); source: design.md section 3.
ARCHITECTURES = ("cpu", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


def slug(text: str) -> str:
    """Lower-case `text` with every run of other characters as one dash: a component of set names and tags."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Target:
    """What the caches are for. `product` is the GPU's marketing name ("NVIDIA H200"), empty for `cpu` or when any will do."""

    arch: str
    product: str = ""

    @property
    def is_gpu(self) -> bool:
        """True for every `sm_*` target."""
        return self.arch != "cpu"

    @property
    def set_name(self) -> str:
        """Default name of the set: `cpu`, `sm_90` or `sm_90-nvidia-h200`."""
        return f"{self.arch}-{slug(self.product)}" if self.product else self.arch


@dataclass(frozen=True, slots=True)
class Model:
    """A resolved model. `source` is the hub id or directory as given; `commit` is empty for a directory."""

    source: str
    path: Path  # directory with config.json on this machine
    served: str  # the string that the server sees
    commit: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)  # directory: name -> sha256 (non-weights) or size (weights)

    def identity(self) -> dict[str, Any]:
        """The part that enters plan.id (design 5.6): repo and commit, or served string and files."""
        return {"repo": self.source, "commit": self.commit} if self.commit else {"served": self.served, "files": dict(self.files)}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the warm-up matrix: `requests` groups of `batch` concurrent prompts of `input` tokens, `output` tokens each."""

    name: str
    batch: int
    input: int
    output: int
    requests: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A serving intent: serve arguments, environment and the matrix (stages in their order)."""

    name: str
    description: str
    entries: tuple[Entry, ...]
    serve: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Content that enters plan.id: everything but the description."""
        doc = asdict(self)
        doc.pop("description")
        return doc


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way in which the runtime can cache. `fills`: kinds that must not come out empty. `fail_hard`: variables of proof start (3)."""

    name: str
    title: str
    env: Mapping[str, str]
    fills: tuple[str, ...]
    fail_hard: Mapping[str, str] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)  # variable of `fail_hard` -> kind whose own entries it makes the owner refuse
    load_lines: tuple[str, ...] = ()  # names of watch rules of which a warm start must show at least one
    load_files: tuple[str, ...] = ()  # fnmatch patterns over `<kind>/<path>`: each such file must be named by one of those lines


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The server's Python: executable, `X.Y.Z`, SOABI (`cpython-311-x86_64-linux-gnu`), sys.path, distributions (PEP 503 name -> version)."""

    executable: str
    version: str
    abi: str
    path: tuple[str, ...]
    packages: Mapping[str, str]
    dist_info: tuple[str, ...]  # directories that hold the dist-info directories
    magic: str = ""  # hex of the byte code's magic number


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything floating resolved. `document` is what the manifest records; `id` hashes it by the rule of design 5.6."""

    id: str
    document: Mapping[str, Any]
    target: Target
    model: Model
    profile: Profile
    interpreter: Interpreter
    root: str
    base: str  # "scratch" or a reference
    runtime: str
    serve: tuple[str, ...]  # production argv after the program, without transport arguments
    env: Mapping[str, str]  # environment added on top of the base: profile, runtime and pins that hold for every strategy
    base_env: Mapping[str, str] = field(default_factory=dict)  # the base image's own ENV, without PATH
    weights: str = "real"
    set_name: str = ""
    transport: tuple[str, ...] = ()
    offline: bool = True
    uncovered: tuple[str, ...] = ()  # names of entries beyond the server's limits


@dataclass(frozen=True, slots=True)
class Transient:
    """Files outside the caches that a start leaves behind and that mean nothing, with the reason (in the runtime's file)."""

    root: str  # "home" or "tmp"
    pattern: Pattern


def parse_arch(text: str) -> str:
    """Validate an architecture name. Raises UsageError with the nearest match."""
    import difflib

    if text in ARCHITECTURES:
        return text
    near = difflib.get_close_matches(text.lower().replace("-", "_"), ARCHITECTURES, 1)
    hint = f"did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"unknown architecture {text!r}",
        code="unknown-arch",
        found=text,
        expected=", ".join(ARCHITECTURES),
        remedy=hint or "pass one of the listed names",
    )


def split_transport(argv: Sequence[str], flags: Mapping[str, int | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split argv into (kept, transport); `flags` maps a transport flag to the number of values that follow it, None for all up to the next flag.

    `--flag=value` counts too, and underscores are dashes: a key must not stay in the plan because it was spelt differently.
    """
    kept: list[str] = []
    transport: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        if name not in flags:
            kept.append(word)
            continue
        transport.append(word)
        count = 0 if equals else flags[name]
        if count is None:
            count = next((number for number, value in enumerate(rest) if value.startswith("-")), len(rest))
        transport += rest[:count]
        del rest[:count]
    return tuple(kept), tuple(transport)
