"""The contract of an executor: where the server is started. One file in this folder, one line in `ALL`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from baker.inside.job import Job, JobResult


class Place(Protocol):
    """A claimed root on the machine where servers are started; every path is a path there."""

    root: str

    def run(self, job: Job, *, name: str) -> JobResult:
        """Run the warm-up driver on one job. Raises MachineError when the driver itself cannot run, Interrupted on a signal."""
        ...

    def wipe(self) -> None:
        """Make the live tree empty."""
        ...

    def stash(self, live: Mapping[str, str], to: Path) -> None:
        """Move the warm-up tree's kinds (name -> directory) away to `to/<name>`."""
        ...

    def restore(self, come_from: Path, live: Mapping[str, str]) -> None:
        """Put a stashed tree back into live, to go on with rounds."""
        ...

    def install(self, layers: Sequence[Path]) -> None:
        """Unpack an image's layers at the root as a container runtime would, replacing what an earlier install left."""
        ...


class Executor(Protocol):
    """Opens places and answers facts about the machine."""

    name: str

    def facts(self, python: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Probe the target machine with the server's interpreter."""
        ...

    @contextmanager
    def claim(self, root: str, work: Path, purpose: str) -> Iterator[Place]:
        """Own a root for one build. Raises MachineError that names the holder, or what stands in the way."""
        ...


Progress = Callable[[str], None]
