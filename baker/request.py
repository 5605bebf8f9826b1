"""What a user asked for, as the command line hands it over: nothing resolved, nothing defaulted that needs a look at the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = "/opt/baker"


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """Arguments of `baker build` and `baker plan` (design 5.1)."""

    arch: str
    model: str
    gpu: str = ""
    served_model: str = ""
    profile: str = "default"
    base: str = ""
    output: str = ""
    runtime: str = "vllm"
    engine: str = "oci"
    executor: str = "local"
    weights: str = "real"
    compression: str = "gzip"
    root: str = DEFAULT_ROOT
    set_name: str = ""
    work: Path | None = None
    python: str = ""
    prove: bool = True
    try_all: bool = False
    force: bool = False
    allow_partial: bool = False
    virtual: bool = False
    keep_ir: bool = False
    serve: tuple[str, ...] = ()
