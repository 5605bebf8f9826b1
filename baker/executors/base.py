"""The contract of an executor: where servers are started. One file in this folder, one line in `ALL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from baker.inside.job import Job, JobResult


class Place(Protocol):
    """A claimed root on the machine where servers are started; every path is a path there."""

    root: str
    python: str

    def run(self, job: Job, *, name: str) -> JobResult:
        """Run the warm-up driver on one job. Raises MachineError when the driver itself cannot run, Interrupted on a signal."""
        ...

    def wipe(self) -> None:
        """Remove whatever baker put below the root: live, an installed image."""
        ...

    def live(self, kind: str) -> str:
        """The kind's directory that the server sees, made if absent."""
        ...

    def stash(self, kinds: Sequence[str], to: Path) -> None:
        """Move the warm-up tree away: each kind's live directory to `to/<kind>`."""
        ...

    def restore(self, kinds: Sequence[str], come_from: Path) -> None:
        """The reverse of stash: move `come_from/<kind>` to live."""
        ...

    def install(self, layers: Sequence[Path]) -> None:
        """Unpack an image's layers at the root as a container runtime would, in place of everything that was there."""
        ...

    def link_model(self, path: Path, served: str) -> None:
        """Make the model at `path` reachable under the served string, where that is another path. Raises MachineError when that path is taken."""
        ...

    def link_driver(self, library: str) -> None:
        """Link `<live>/.libcuda/libcuda.so.1` to the driver's library, as `start` does (baker.inside.libcuda); "": none is known."""
        ...

    def fresh(self, name: str) -> Path:
        """A new empty directory outside of the root, for HOME, TMPDIR or a record; gone when the place is given back."""
        ...


class Executor(Protocol):
    """Opens places and answers facts about the machine where servers are started."""

    name: str

    def probe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Facts by `baker.inside.probe` under `request["python"]`: {"names", "python", "dist_info", "site"}. Raises MachineError."""
        ...

    def environment(self) -> Mapping[str, str]:
        """What the server's environment holds before baker adds anything (for `local`: an allow-list of this process's)."""
        ...

    def claim(self, root: str, work: Path, python: str) -> AbstractContextManager[Place]:
        """Own a root for one build. Raises MachineError that names the holder, or what stands in the way."""
        ...
