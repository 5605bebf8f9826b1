"""`baker build`: from a model to a warm, proven image."""

from __future__ import annotations

import importlib
from typing import Any

from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.options import ServeCommand, request_options
from baker.engines.base import Engine
from baker.errors import UsageError
from baker.pipeline import Built, Ports, build
from baker.request import BuildRequest
from baker.steps.compare import STAYS_COLD, rows


def door(folder: str, name: str) -> Any:
    """The implementation `name` of `baker.<folder>`: the command line is the only place that chooses one."""
    try:
        return importlib.import_module(f"baker.{folder}").by_name(name)
    except KeyError:
        raise UsageError(
            f"{name!r} is none of baker's {folder}",
            code="unknown-value",
            found=name,
            expected=", ".join(item.name for item in importlib.import_module(f"baker.{folder}").ALL),
            remedy="use the baker version that made the image",
        ) from None


def ports(runtime: str, executor: str, engine: str) -> Ports:
    """The chosen implementations."""
    return Ports(door("runtimes", runtime), door("executors", executor), door("engines", engine))


def default_engine() -> Engine:
    """The engine that reads `oci:` references."""
    engine: Engine = door("engines", "oci")
    return engine


def document(built: Built) -> dict[str, Any]:
    """What `--json` prints."""
    proof = built.proof
    return {
        "reference": built.reference,
        "digest": built.image.digest,
        "plan": built.plan.id,
        "set": built.plan.set_name,
        "reused": built.reused,
        "verdict": proof.document["verdict"] if proof else "unproven",
        "strategy": proof.document["strategy"] if proof else built.record.get("strategy"),
        "fallen": [fallen.document() for fallen in built.fallen],
        "uncovered": list(built.plan.uncovered),
        "partial": list(built.partial),
        "layers": [dict(layer) for layer in built.layers],
        "comparison": [row.document() for row in rows(proof.document)] if proof else [],
        "proof": proof.document if proof else None,
    }


def show(console: Console, built: Built) -> int:
    """Render a build or a proof; returns the exit code (5 for a partial image)."""
    proof = built.proof
    lines = [f"{built.reference}@{built.image.digest}", f"plan {built.plan.id}, set {built.plan.set_name}"]
    for fallen in built.fallen:
        lines.append(f"strategy {fallen.strategy} fell: {fallen.reason}")
        lines += [f"  {line}" for line in evidence(fallen.evidence)]
    if proof:
        lines.append(f"strategy {proof.document['strategy']}: {proof.document['verdict']}")
        lines += [f"  {finding.line()}" for finding in proof.findings]
        lines += [f"  allowed {rule}: {len(paths)} files: {_some(paths, console.verbose)}" for rule, paths in allowed(proof.document).items()]
    else:
        lines.append(f"strategy {built.record.get('strategy')}: NOT proven")
    lines += [f"partial: {entry}" for entry in built.partial]
    console.result(document(built), lines)
    console.table(("layer", "bytes", "digest"), [(row["kind"], row["size"], row["digest"]) for row in built.layers])
    if proof:
        table = [(row.what, row.cold, row.warm, None if row.ratio is None else round(row.ratio, 3), row.unit) for row in rows(proof.document)]
        console.table(
            ("cold against warm", f"cold, at bake (n={proof.document['cold']['n']})", f"warm (median, n={proof.document['warm']['n']})", "ratio", ""),
            table,
        )
        console.text([STAYS_COLD])
    return 5 if built.partial else 0


def evidence(found: Any) -> list[str]:
    """Evidence of a fallen strategy as lines."""
    lines = []
    for name, value in dict(found).items():
        values = value if isinstance(value, list) else [value]
        lines += [f"{name}: {item}" for item in values[:4]]
    return lines


def allowed(proof: Any) -> dict[str, list[str]]:
    """Every pattern that matched in any start, with all its matches (`ROOT/PATH`), each once."""
    found: dict[str, set[str]] = {}
    for start in proof["starts"]:
        for rule, paths in start.get("files", {}).get("allowed", {}).items():
            found.setdefault(rule, set()).update(paths)
    return {rule: sorted(paths) for rule, paths in found.items()}


def _some(paths: list[str], verbose: int) -> str:
    shown = paths if verbose else paths[:2]
    return ", ".join(shown) + ("" if len(shown) == len(paths) else ", … (all with -v)")


@baker_command("build", cls=ServeCommand)
@request_options
def command(console: Console, request: BuildRequest) -> int:
    """Bake a model's caches into an image and prove that they hit.

    Everything after -- goes to the server, at bake and in production.
    """
    built = build(request, ports(request.runtime, request.executor, request.engine), console.progress.step)
    return show(console, built)
