"""What ships of a warmed tree, kind by kind, and what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from baker import virtual as virtuals
from baker.caches import by_name, objects
from baker.errors import ArtifactError
from baker.inside.finding import Finding
from baker.pack.tree import Survey, survey
from baker.spec import Plan
from baker.steps.jobs import Bed
from baker.steps.warmup import Warmed


def take(bed: Bed, warmed: Warmed, secrets: Mapping[str, str], allow_partial: bool) -> tuple[dict[str, Survey], dict[str, list[str]]]:
    """Kinds with files, and the files left out on request. A kind that the strategy must fill and that is empty is an error; others are left out."""
    found: dict[str, Survey] = {}
    partial: dict[str, list[str]] = {}
    for name in warmed.kinds:
        chosen, kind = _chosen_by_time(bed.plan, warmed.tree / name), by_name(name)
        result = _look(bed, warmed, name, secrets, chosen)
        hard = [f for f in result.findings if f.severity == "hard"]
        if hard and allow_partial:
            named = {kind.unit(finding.message.partition(" ")[0]) for finding in hard}
            partial[name] = sorted(f.path for f in result.files if kind.unit(f.path) in named)
            result = _look(bed, warmed, name, secrets, [*chosen, *partial[name]])
        result.require_sound()  # with --allow-partial: what leaving single files out did not mend
        if result.files:
            found[name] = result
        elif name in warmed.strategy.fills:
            elsewhere = [path for r in warmed.rounds for path in r["files"]["new"]][:8]
            raise ArtifactError(
                f"kind {name} came out empty, and strategy {warmed.strategy.name} must fill it",
                code="kind-empty",
                found=f"no file; new files of the warm-up: {', '.join(elsewhere) or 'none'}",
                expected=f"files below live/{name}",
                remedy="the server did not use the cache variable: read the log for a setting that moves or disables its cache",
            )
    if not found:
        raise ArtifactError(
            "nothing was cached: every kind came out empty",
            code="nothing-cached",
            found=f"no file below live/{{{','.join(warmed.kinds)}}}",
            expected="files of at least one kind",
            remedy="the program compiled nothing that baker knows, or moved its caches: read its log",
        )
    return found, partial


def _look(bed: Bed, warmed: Warmed, name: str, secrets: Mapping[str, str], exclude: Sequence[str]) -> Survey:
    """What ships of a kind, with the findings of the kind, of the runtime (missing ranks) and on shared objects for another machine."""
    root = warmed.tree / name
    result = survey(root, by_name(name), secrets=secrets, mtimes=by_name(name).mtimes, exclude=exclude)
    paths = [file.path for file in result.files]
    more = [*bed.runtime.problems(bed.plan.serve, name, paths), *objects.examine(name, root, paths, warmed.facts).findings]
    where = f"{bed.plan.root}/live/{name}"
    there = by_name(name).factors(root).get("directories") or []
    if any(top != where for top in there):
        text = "entries list their files in another directory than live: they would be read from there, or missed"
        more.append(Finding("triton-path", "hard", name, text, ", ".join(there[:3]), where, "bake again from an empty root"))
    return replace(result, findings=(*result.findings, *(finding for finding in more if finding not in result.findings)))


def _chosen_by_time(plan: Plan, root: Path) -> list[str]:
    """Files of a kind that a bake without the GPU leaves out: records of choices by time."""
    virtual = str(plan.document.get("virtual") or "")
    if virtual != virtuals.CROSS or not root.is_dir():
        return []
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(path for path in paths if virtuals.left_out(virtual, f"{root.name}/{path}"))
