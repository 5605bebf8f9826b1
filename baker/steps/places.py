"""Where a build works, looked at before the warm-up and not after it: places apart from one another, a destination that takes the image, room."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from baker.engines.base import Engine
from baker.errors import UsageError
from baker.spec import Plan
from baker.steps import images, merge, space
from baker.steps.work import state_home


def work_directory(plan: Plan, wanted: Path | None) -> Path:
    """`--work`, by default `<state home>/<plan.id>/<set>`; absolute."""
    return (wanted or state_home() / plan.id / plan.set_name).absolute()


def destination(plan: Plan, output: str) -> str:
    """`--output`, by default `oci:./<set>-<plan.id[:12]>`."""
    return output or f"oci:./{plan.set_name}-{plan.id[:12]}"


@dataclass(frozen=True, slots=True)
class Target:
    """The layout and tag that a build writes; `named`: the tag was given, so no other one is written."""

    directory: str
    tag: str
    named: bool

    @property
    def reference(self) -> str:
        """`oci:DIR:TAG`."""
        return f"{self.directory}:{self.tag}"

    def tags(self, neighbour: merge.Neighbour | None, set_name: str) -> list[str]:
        """The tags of the finished image: its own, and without a given one the name of each of its sets."""
        names = [set_name, *(str(entry["name"]) for entry in neighbour.sets)] if neighbour and not self.named else []
        return list(dict.fromkeys([self.tag, *names]))


def target(engine: Engine, destination: str, plan: Plan, named_set: bool) -> Target:
    """Where the image goes: see merge.wanted_tag."""
    tag = merge.wanted_tag(engine, destination, plan, named_set)
    given = merge.has_tag(destination)
    return Target(destination.rpartition(":")[0] if given else destination, tag, given)


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
