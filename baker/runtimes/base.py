"""The contract of a runtime: the server that is warmed. One file in this folder, one line in `ALL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from baker.inside.finding import Finding
from baker.inside.job import Request, Stage, Watch
from baker.spec import Interpreter, Model, Plan, Profile, Strategy, Target, Transient


@dataclass(frozen=True, slots=True)
class Script:
    """A profile turned into requests: what the driver plays. `uncovered` names entries beyond the server's limits."""

    ready: Request
    stages: tuple[Stage, ...]
    reference: Stage  # greedy, batch 1: the equality proof
    uncovered: tuple[str, ...] = ()


class Runtime(Protocol):
    """What baker knows of one server program."""

    name: str
    once: bool  # a program that ends by itself: no port, no requests, no tokens
    ranked: tuple[str, ...]  # kinds whose entries are of a rank: useless on a node with fewer GPUs than ranks
    masked: tuple[str, ...]  # variables whose values never reach a log

    def kinds(self, target: Target) -> tuple[str, ...]:
        """Cache kinds that it can fill for this target."""
        ...

    def world(self, serve: Sequence[str]) -> int:
        """Processes that hold a part of the model with these serve arguments: ranks of tensor, pipeline and data parallelism on this node."""
        ...

    def version(self, interpreter: Interpreter) -> str:
        """The runtime's version from the server's distributions. Raises MachineError when it is not installed there."""
        ...

    def require(self, interpreter: Interpreter, target: Target) -> None:
        """Raise MachineError when this installation cannot serve the target."""
        ...

    def transport(self) -> Mapping[str, int | None]:
        """Arguments that say where the server listens, and how many values each takes (None: all up to the next flag): not in plan.id."""
        ...

    def serve(self, model: Model, target: Target, extra: Sequence[str]) -> tuple[str, ...]:
        """Production arguments after the program, without transport. Raises UsageError for arguments that baker owns."""
        ...

    def environment(self, model: Model, target: Target) -> Mapping[str, str]:
        """Variables that the image pins for every strategy."""
        ...

    def listen(self, port: int) -> tuple[str, ...]:
        """Arguments that make it listen on that port of 127.0.0.1."""
        ...

    def command(self, interpreter: Interpreter, serve: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(what starts it, its arguments): the entry point and the CMD of the image. `serve` as `serve()` returned it."""
        ...

    def files(self, serve: Sequence[str]) -> Mapping[str, str]:
        """path -> sha256 of what the command line runs and no package version binds; part of plan.id."""
        ...

    def bake_arguments(self, weights: str) -> tuple[str, ...]:
        """Arguments added at bake and proof only (dummy weights)."""
        ...

    def strategies(self, target: Target, version: str) -> tuple[Strategy, ...]:
        """Ways to cache, in the order in which they are tried."""
        ...

    def script(self, plan: Plan, profile: Profile) -> Script:
        """The matrix as requests with exact lengths, every prompt different from its first token on."""
        ...

    def watch(self, version: str) -> tuple[Watch, ...]:
        """Log lines that mean something in this version; generic ones for an unknown version."""
        ...

    def transient(self, version: str) -> tuple[Transient, ...]:
        """Files outside the caches that a start leaves behind."""
        ...

    def neutral(self, version: str, target: Target, strategy: str) -> Mapping[str, Any]:
        """What may differ at start without touching a key of that strategy's caches: see baker.inside.arguments for the document."""
        ...

    def problems(self, serve: Sequence[str], kind: str, paths: Sequence[str]) -> Sequence[Finding]:
        """What the kept files of a cache kind lack for these serve arguments; hard ones fail the bake."""
        ...

    def shim(self, interpreter: Interpreter, root: str) -> Mapping[str, bytes]:
        """Scripts for `<root>/bin`: file name -> content; a pod that overrides the entrypoint passes through start."""
        ...
