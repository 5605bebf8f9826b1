"""Where a build works, looked at before the warm-up and not after it: places apart from one another, a destination that takes the image, room."""

from __future__ import annotations

import os
from pathlib import Path

from baker.engines.base import Engine
from baker.errors import UsageError
from baker.spec import Plan
from baker.steps import images, space
from baker.steps.work import state_home


def work_directory(plan: Plan, wanted: Path | None) -> Path:
    """`--work`, by default `<state home>/<plan.id>/<set>`; absolute."""
    return (wanted or state_home() / plan.id / plan.set_name).absolute()


def destination(plan: Plan, output: str) -> str:
    """`--output`, by default `oci:./<set>-<plan.id[:12]>`."""
    return output or f"oci:./{plan.set_name}-{plan.id[:12]}"


def require(engine: Engine, plan: Plan, work: Path, destination: str) -> None:
    """Raise BakerError for the first thing that would only fail, or be lost, at the end of a bake."""
    engine.accept(images.tagged(destination, plan.set_name))
    output = destination.removeprefix("oci:")
    _apart("--work", work, "--root", plan.root, "is emptied for every start")
    _apart("--output", Path(output), "--root", plan.root, "is emptied for every start")
    _apart("--output", Path(output), "--work", work, "is baker's own")
    if not plan.model.commit:
        for option, path in (("--root", Path(plan.root)), ("--work", work), ("--output", Path(output))):
            _apart(option, path, "--model", plan.model.path, "would be another model with each build's files in it")
    space.require(plan, work, destination)


def _apart(option: str, path: Path, other: str, directory: str | Path, why: str) -> None:
    inside, outer = (os.path.realpath(place) for place in (path, directory))
    if inside == outer or inside.startswith(outer + "/"):
        raise UsageError(
            f"{option} lies inside of {other}, which {why}",
            code="conflict",
            found=f"{path} in {directory}",
            expected="directories apart from one another",
            remedy=f"pass another {option}",
        )
