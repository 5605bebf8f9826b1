"""`baker plan`: everything resolved and checked, nothing started."""

from __future__ import annotations

from typing import Any

from baker import plan as planning
from baker.cli.build import ports
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.options import ServeCommand, request_options
from baker.request import BuildRequest
from baker.steps import images, places
from baker.steps.proof import BARE_STARTS
from baker.steps.warmup import MAX_ROUNDS


@baker_command("plan", cls=ServeCommand)
@request_options
def command(console: Console, request: BuildRequest) -> int:
    """Resolve a build and check what it needs, without starting anything.

    Takes the arguments of `baker build`; needs no GPU.
    """
    chosen = ports(request.runtime, request.executor, request.engine)
    console.progress.step("resolving")
    plan = planning.resolve(request, chosen.runtime, chosen.executor, chosen.engine, look_for_gpu=False)
    work = places.work_directory(plan, request.work)
    wanted = places.destination(plan, request.output)
    places.require(chosen.engine, plan, work, wanted)
    destination = places.target(chosen.engine, wanted, plan, bool(request.set_name)).reference
    there = images.existing(chosen.engine, destination, plan) is not None
    script = chosen.runtime.script(plan, plan.profile)
    version = chosen.runtime.version(plan.interpreter)
    strategies = chosen.runtime.strategies(plan.target, version)
    requests = sum(len(group) for stage in script.stages for group in stage.groups)
    starts = {
        "least": 0 if there else 2,
        "most": 0 if there else MAX_ROUNDS * len(strategies),
        "proof": (BARE_STARTS + 1) if request.prove else 0,
    }
    document: dict[str, Any] = {
        **plan.document,
        "output": destination,
        "exists": there,
        "work": str(work),
        "strategies": [strategy.name for strategy in strategies],
        "starts": starts,
        "requests_per_start": requests,
    }
    lines = [
        f"plan      {plan.id}",
        f"set       {plan.set_name}",
        f"model     {plan.model.source}" + (f"@{plan.model.commit}" if plan.model.commit else "") + f", served as {plan.model.served}",
        f"runtime   {plan.runtime} {version}, {plan.interpreter.executable} (Python {plan.interpreter.version})",
        f"serve     {' '.join(plan.serve)}",
        f"base      {plan.base}, root {plan.root}",
        f"profile   {plan.profile.name}: {len(script.stages)} stages, {requests} requests a start",
        f"strategy  {', then '.join(f'{s.name} ({s.title})' for s in strategies)}",
        f"starts    {starts['least']} to {starts['most']} of warm-up, {starts['proof']} of proof",
        f"output    {destination}" + (" (is there already)" if there else ""),
        f"work      {work}",
        *[f"uncovered {entry}" for entry in plan.uncovered],
    ]
    console.result(document, lines)
    return 0
