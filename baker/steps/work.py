"""The work directory: what a build did so far, written so that the same command goes on after any end of the last one.

    plan.json                     the resolved plan
    others/<plan>/                strategies of other plans that used this directory
    state.json                    where it stands, for people and for `baker build` itself
    jobs/, logs/                  one file a server start
    strategies/<name>/rounds/N.json   results of whole rounds
    strategies/<name>/fallen.json     why a strategy fell; fallen-last.json once all fell, so that the same command tries them again
    strategies/<name>/tree/<kind>/    the warm-up tree after the fixpoint; tree.json holds its inventory
    image/                        the candidate: an OCI layout that has no tag yet

Every file appears by rename, so a half-written one is never taken for whole. What later runs trust (fallen, partial, tree) carries a seal, the hash
of its own content: a document that a disk or a hand has changed is no document, and its step is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from baker.errors import MachineError
from baker.pack.space import free
from baker.pack.unpack import remove

_SEAL = "sha256"


def state_home() -> Path:
    """`$XDG_STATE_HOME/baker`, by default `~/.local/state/baker` (XDG base directory specification)."""
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "baker"
    except RuntimeError as error:  # no HOME, and a user without passwd entry
        raise MachineError(
            "no home directory for the work directory", code="work-not-writable", found=str(error), expected="HOME", remedy="pass --work DIR"
        ) from None


def _seal(document: Mapping[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, document: Mapping[str, Any], *, sealed: bool = False) -> None:
    """Write atomically. Raises MachineError with needed and free bytes when the disk is full."""
    data = json.dumps({**document, _SEAL: _seal(document)} if sealed else document, indent=1, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # a pipe there would be waited for, a link be followed
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # where it could not be made, it need not be removed
            temporary.unlink()
        raise MachineError(
            f"cannot write {path}",
            code="no-space" if error.errno == 28 else "work-not-writable",
            found=f"{error.strerror}, {free(path)} bytes free",
            expected=f"{len(data)} bytes",
            remedy="free space there or pass another --work",
        ) from None


def read_json(path: Path, *, sealed: bool = False) -> dict[str, Any] | None:
    """The document, or None when it is absent or not whole (then the step is done again). `sealed`: as it was written, to the last bit."""
    try:
        # A pipe would be waited for.
        document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or (sealed and document.pop(_SEAL, "") != _seal(document)):
        return None
    return document


# What of a plan document decides its caches (plan.id), and who wrote the records.
_DECIDES = ("schema", "target", "base", "root", "runtime", "model", "serve", "profile", "env", "baker")


def _name(document: Mapping[str, Any]) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", f"{str(document.get('id', 'unknown'))[:12]}-{document.get('baker', '')}")


class Work:
    """Paths and state of one build's work directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def state(self, stage: str, **details: Any) -> None:
        """Say where the build stands."""
        write_json(self.directory / "state.json", {"stage": stage, "pid": os.getpid(), **details})

    def adopt(self, document: Mapping[str, Any]) -> str:
        """Make this the directory of the plan `document`. What another plan warmed here is set aside until that plan comes again (case O-17).

        Returns what to say, "" when nothing was in the way. Call with the directory locked.
        """
        before, strategies, said = read_json(self.directory / "plan.json") or {}, self.directory / "strategies", ""
        if strategies.exists() and _name(before) != _name(document):
            aside = self.directory / "others" / _name(before)
            remove(aside)
            aside.parent.mkdir(parents=True, exist_ok=True)
            strategies.rename(aside)
            differs = ", ".join(key for key in _DECIDES if before.get(key) != document.get(key)) if before else "no plan.json"
            said = f"the work directory held another plan ({differs}): set aside as {aside}"
        if (earlier := self.directory / "others" / _name(document)).exists() and not strategies.exists():
            earlier.rename(strategies)
        write_json(self.directory / "plan.json", document)
        return said

    def strategy(self, name: str) -> Path:
        """Directory of one strategy."""
        return self.directory / "strategies" / name

    def reconsider(self, names: Iterable[str]) -> None:
        """Keep the evidence of fallen strategies, but let the next run try them again."""
        for name in names:
            path = self.strategy(name) / "fallen.json"
            if path.exists():
                path.replace(path.with_name("fallen-last.json"))

    def log(self, name: str) -> Path:
        """Log file of one server start; its directory is made, what an earlier start left there is gone."""
        path = self.directory / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(path)
        return path
