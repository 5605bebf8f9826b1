"""Turning a plan into the job of one server start: argv, the complete environment, roots to watch."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baker.caches import by_name
from baker.executors.base import Executor, Place
from baker.inside.job import Job, Stage
from baker.runtimes.base import Runtime, Script
from baker.spec import Plan, Strategy
from baker.steps.work import Work

SCRATCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROOF_UID = 12345  # any UID without a passwd entry, group 0: what OpenShift gives a pod


@dataclass(frozen=True, slots=True)
class Bed:
    """Everything that starting servers for one build needs."""

    plan: Plan
    runtime: Runtime
    executor: Executor
    place: Place
    work: Work
    script: Script


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pins(kinds: Sequence[str], root: str) -> dict[str, str]:
    """The cache variables of the kinds, pointed at live."""
    return {name: value for kind in kinds for name, value in by_name(kind).pins(f"{root}/live").items()}


def server_env(plan: Plan, strategy: Strategy, kinds: Sequence[str]) -> dict[str, str]:
    """What the image's ENV holds for the server: the base's, profile and runtime, the strategy's variables, the cache variables."""
    return {**plan.base_env, **plan.env, **strategy.env, **pins(kinds, plan.root)}


def server_argv(bed: Bed, port: int) -> list[str]:
    """Program, production arguments, what only a bake adds, and the transport of this start."""
    plan = bed.plan
    program, arguments = bed.runtime.command(plan.interpreter, plan.serve)
    return [*program, *arguments, *bed.runtime.bake_arguments(plan.weights), *bed.runtime.listen(port)]


def make_job(
    bed: Bed,
    *,
    name: str,
    env: Mapping[str, str],
    stages: Sequence[Stage],
    kinds: Sequence[str],
    prefix: Sequence[str] = (),
    stop_on: Sequence[str] = (),
    record: bool,
    isolate: bool = False,
) -> Job:
    """One start with a fresh HOME and TMPDIR. `prefix` is the command of `start` in a proof; `isolate` asks for an own network and UID."""
    port = free_port()
    home, temporary = bed.place.fresh("home"), bed.place.fresh("tmp")
    base = dict(bed.executor.environment())
    base["PATH"] = f"{bed.plan.root}/bin:{base.get('PATH') or SCRATCH_PATH}"
    complete = {**base, **env, "HOME": str(home), "TMPDIR": str(temporary)}
    roots = {f"live/{kind}": f"{bed.plan.root}/live/{kind}" for kind in kinds}
    return Job(
        argv=[*prefix, *server_argv(bed, port)],
        env=complete,
        port=port,
        ready=bed.script.ready,
        stages=list(stages),
        log=str(bed.work.log(name)),
        out=str(bed.work.directory / "jobs" / f"{name}.result.json"),
        roots={**roots, "home": str(home), "tmp": str(temporary)},
        watch=list(bed.runtime.watch(bed.runtime.version(bed.plan.interpreter))),
        stop_on=list(stop_on),
        record=str(bed.place.fresh("record")) if record else "",
        network="none" if isolate else "host",
        uid=PROOF_UID if isolate else None,
        cwd=str(Path("/")),
        mask=list(bed.runtime.masked),
        once=bed.runtime.once,
    )
