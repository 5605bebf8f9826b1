"""The build on one screen: resolve → claim the root → warm each strategy until one proves → export → attach the proof."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from baker import hub, machine
from baker import plan as planning
from baker.engines.base import Engine, Image
from baker.errors import ArtifactError, MachineError
from baker.executors.base import Executor
from baker.request import BuildRequest
from baker.runtimes.base import Runtime
from baker.spec import Plan
from baker.steps import images, merge, places
from baker.steps.assemble import Candidate, assemble, export
from baker.steps.jobs import Bed
from baker.steps.proof import Proof, prove
from baker.steps.warmup import Fallen, Warmed, warm
from baker.steps.work import Work, write_json

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ports:
    """The implementations that the command line chose."""

    runtime: Runtime
    executor: Executor
    engine: Engine


@dataclass(frozen=True, slots=True)
class Built:
    """What a build leaves: the image, its proof (None with --no-prove), the strategies that fell, whether nothing had to be baked."""

    plan: Plan
    reference: str
    image: Image
    proof: Proof | None
    record: Mapping[str, Any]
    fallen: tuple[Fallen, ...] = ()
    reused: bool = False
    partial: tuple[str, ...] = ()
    layers: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)


def build(request: BuildRequest, ports: Ports, say: Say) -> Built:
    """Bake and prove. Raises BakerError; whatever fails, finished work stays in the work directory and the same command takes it up."""
    plan = planning.resolve(request, ports.runtime, ports.executor, ports.engine)
    work = Work(places.work_directory(plan, request.work))
    destination = places.destination(plan, request.output)
    places.require(ports.engine, plan, work.directory, destination)
    say(f"plan {plan.id[:12]}, set {plan.set_name}, work directory {work.directory}")
    if left := [word.partition("=")[0] for word in plan.transport if word.startswith("-")]:
        say(f"not part of the image: {' '.join(left)} (where the server listens is up to each start)")
    for entry in plan.uncovered:
        say(f"uncovered: {entry}")
    target = places.target(ports.engine, destination, plan, bool(request.set_name))
    before = images.digest_at(ports.engine, target.reference)
    existing = None if request.force else images.existing(ports.engine, target.reference, plan)
    neighbour = merge.find(ports.engine, target.directory, target.tag, plan, force=request.force) if existing is None else None
    if plan.model.commit:
        hub.fetch(plan.model, "dummy" if request.weights == "dummy" else "real")
    with ports.executor.claim(plan.root, work.directory, plan.interpreter.executable) as place:
        place.link_model(plan.model.path, plan.model.served)
        if other := work.adopt(plan.document):
            say(other)
        bed = Bed(plan, ports.runtime, ports.executor, place, work, ports.runtime.script(plan, plan.profile))
        if existing is not None:
            say(f"{existing.reference} is there already: nothing to bake")
            return reprove(bed, ports.engine, existing, request.prove, say)
        return _bake(request, ports, bed, target, before, neighbour, say)


def _bake(request: BuildRequest, ports: Ports, bed: Bed, target: places.Target, before: str, neighbour: merge.Neighbour | None, say: Say) -> Built:
    fallen: list[Fallen] = []
    proven: list[tuple[Candidate, Proof | None]] = []
    for strategy in ports.runtime.strategies(bed.plan.target, ports.runtime.version(bed.plan.interpreter)):
        if reason := merge.conflict(neighbour, strategy):
            say(f"strategy {strategy.name} left out: {reason}")
            fallen.append(Fallen(strategy.name, reason))
            continue
        warmed = warm(bed, strategy, say, ports.runtime.kinds(bed.plan.target))
        if isinstance(warmed, Fallen):
            say(f"strategy {strategy.name} fell: {warmed.reason}")
            fallen.append(warmed)
            continue
        outcome = _candidate(request, ports, bed, warmed, tuple(fallen), neighbour, say)
        if isinstance(outcome, Fallen):
            say(f"strategy {strategy.name} fell: {outcome.reason}")
            fallen.append(outcome)
            continue
        proven.append(outcome)
        if not request.try_all:
            break
    if not proven:
        bed.work.reconsider(f.strategy for f in fallen)
        raise ArtifactError(
            "no caching strategy proved",
            code="no-strategy",
            found="; ".join(f"{f.strategy}: {f.reason}" for f in fallen),
            expected="one whose finished image starts without a new file and without a compile event",
            remedy=f"the evidence is in {bed.work.directory / 'strategies'}; the same command tries them all again",
            fallen=[f.document() for f in fallen],
        )
    candidate, proof = min(proven, key=lambda pair: _speed(pair[1]))
    tags = target.tags(neighbour, bed.plan.set_name)
    image, reference = export(ports.engine, candidate, (target.directory, tags), before, proof, fallen)
    bed.work.state("done", image=image.digest, reference=reference)
    return Built(bed.plan, reference, image, proof, candidate.record, tuple(fallen), partial=candidate.partial, layers=images.layer_table(image))


def _speed(proof: Proof | None) -> float:
    return float((proof.document["warm"]["phases_s"] if proof else {}).get("ready", 0.0))


def _candidate(
    request: BuildRequest,
    ports: Ports,
    bed: Bed,
    warmed: Warmed,
    fallen: tuple[Fallen, ...],
    neighbour: merge.Neighbour | None,
    say: Say,
) -> tuple[Candidate, Proof | None] | Fallen:
    bed.work.state("packing", strategy=warmed.strategy.name)
    candidate = assemble(bed, ports.engine, warmed, request, fallen, _secrets(ports.runtime), neighbour)
    for line in candidate.remarks:
        say(line)
    if not request.prove:
        say("not proven: --no-prove was given, and the image says so")
        return candidate, None
    proof = prove(bed, candidate.layer_paths, candidate.env, candidate.image.digest, candidate.manifest, candidate.record, say)
    write_json(bed.work.strategy(warmed.strategy.name) / "proof.json", proof.document)
    if not proof.proven:
        hard = [f for f in proof.findings if f.severity == "hard"]
        return Fallen(warmed.strategy.name, f"the proof failed: {'; '.join(f.message for f in hard)}", {"findings": [f.line() for f in hard]})
    return candidate, proof


def _secrets(runtime: Runtime) -> dict[str, str]:
    return {name: value for name in runtime.masked if (value := os.environ.get(name))}


def reprove(bed: Bed, engine: Engine, image: Image, wanted: bool, say: Say) -> Built:
    """Prove an existing image again and attach the new proof. Raises ArtifactError when it does not prove any more."""
    opened = images.open_image(engine, image)
    record = images.record_of(opened, bed.plan.set_name)
    fallen = tuple(Fallen(f["strategy"], f["reason"], f.get("evidence") or {}) for f in record.get("fallen") or ())
    partial = images.left_out(record)
    built = Built(bed.plan, image.reference, image, None, record, fallen, reused=True, partial=partial, layers=images.layer_table(image))
    if not wanted:
        return built
    proof = prove(bed, opened.layer_paths, opened.env, image.digest, opened.manifest, record, say)
    write_json(bed.work.directory / "proof.json", proof.document)
    if not proof.proven:
        hard = [f for f in proof.findings if f.severity == "hard"]
        raise ArtifactError(
            f"{image.reference} does not prove: {hard[0].message}",
            code=hard[0].code,
            found=str(hard[0].found),
            expected=str(hard[0].expected),
            remedy=f"{hard[0].remedy}; the whole record is in {bed.work.directory / 'proof.json'}",
            findings=[f.document() for f in hard],
        )
    images.attach_proof(engine, image, proof)
    return replace(built, proof=proof)


def prove_reference(
    reference: str, ports_of: Callable[[str], Ports], engine: Engine, model: str, work: Path | None, say: Say, set_name: str = ""
) -> Built:
    """`baker prove REF`: everything comes from the image; `model` is where its weights are on this machine, if not where they were.

    Of several sets: `set_name`, else the one that `start` would pick on this machine.
    """
    image = engine.read(reference)
    opened = images.open_image(engine, image)
    executor = ports_of(str(opened.manifest.plan.get("runtime", "vllm"))).executor
    chosen = planning.choose_set(opened.manifest, set_name, executor)
    plan = planning.from_manifest(images.plan_of(opened, chosen), Path(model) if model else None)
    if plan.model.commit:
        hub.fetch(plan.model, "dummy" if plan.weights == "dummy" else "real")
    ports = ports_of(plan.runtime)
    found = planning.inspect_interpreter(plan.interpreter.executable, ports.executor)
    if found.version != plan.interpreter.version:
        raise MachineError(
            "the server's interpreter is not the one of the bake",
            code="wrong-interpreter",
            found=f"{found.executable} {found.version}",
            expected=plan.interpreter.version,
            remedy="prove in the base's own environment",
        )
    machine.require_gpu(plan.target, ports.executor, virtual=False, marked=bool(plan.document.get("virtual")))
    directory = Work(places.work_directory(plan, work))
    with ports.executor.claim(plan.root, directory.directory, plan.interpreter.executable) as place:
        place.link_model(plan.model.path, plan.model.served)
        bed = Bed(plan, ports.runtime, ports.executor, place, directory, ports.runtime.script(plan, plan.profile))
        return reprove(bed, engine, image, True, say)
