"""The work directory: what a build did so far, written so that the same command goes on after any end of the last one.

    plan.json                     the resolved plan
    state.json                    where it stands, for people and for `baker build` itself
    jobs/, logs/                  one file a server start
    strategies/<name>/rounds/N.json   results of whole rounds
    strategies/<name>/fallen.json     why a strategy fell
    strategies/<name>/tree/<kind>/    the warm-up tree after the fixpoint; tree.json holds its inventory
    image/                        the candidate: an OCI layout that has no tag yet

Every file appears by rename, so a half-written one is never taken for whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baker.errors import MachineError
from baker.pack.space import free


def state_home() -> Path:
    """`$XDG_STATE_HOME/baker`, by default `~/.local/state/baker` (XDG base directory specification)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "baker"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write atomically. Raises MachineError with needed and free bytes when the disk is full."""
    data = json.dumps(document, indent=1, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise MachineError(
            f"cannot write {path}",
            code="no-space" if error.errno == 28 else "work-not-writable",
            found=f"{error.strerror}, {free(path)} bytes free",
            expected=f"{len(data)} bytes",
            remedy="free space there or pass another --work",
        ) from None


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, or None when it is absent or not whole (then the step is done again)."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


class Work:
    """Paths and state of one build's work directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def state(self, stage: str, **details: Any) -> None:
        """Say where the build stands."""
        write_json(self.directory / "state.json", {"stage": stage, "pid": os.getpid(), **details})

    def strategy(self, name: str) -> Path:
        """Directory of one strategy."""
        return self.directory / "strategies" / name

    def log(self, name: str) -> Path:
        """Log file of one server start; its directory is made."""
        path = self.directory / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
