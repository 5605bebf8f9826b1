"""From a warmed tree to a candidate image: survey, manifest, layers, OCI layout without a tag that anybody would pull."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker import __version__
from baker import virtual as virtuals
from baker.caches import by_name, gpu, objects
from baker.engines.base import Base, Engine, Image, Recipe
from baker.errors import ArtifactError
from baker.inside.manifest import SCHEMA, Manifest, canonical, digest, parse
from baker.pack import compress, image, leaks
from baker.pack.tree import Survey
from baker.pack.unpack import remove
from baker.pack.zips import start_zip
from baker.request import BuildRequest
from baker.spec import Plan, Strategy
from baker.steps import merge, surveys
from baker.steps.facts import PACKAGES
from baker.steps.images import RECORD_TYPE, layer_paths, left_out
from baker.steps.jobs import Bed, pins, server_env
from baker.steps.merge import Neighbour
from baker.steps.proof import ARTIFACT_TYPE as PROOF_TYPE
from baker.steps.proof import Proof
from baker.steps.warmup import Fallen, Warmed


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image that nobody can pull yet: it gets its tag when it has proved."""

    image: Image
    recipe: Recipe
    manifest: Manifest
    record: Mapping[str, Any]  # the bake record: rounds, timings, fallen strategies
    env: Mapping[str, str]
    layer_paths: tuple[Path, ...]
    remarks: tuple[str, ...]
    partial: tuple[str, ...] = ()


def assemble(
    bed: Bed,
    engine: Engine,
    warmed: Warmed,
    request: BuildRequest,
    fallen: Sequence[Fallen],
    secrets: Mapping[str, str],
    neighbour: Neighbour | None = None,
) -> Candidate:
    """Survey the tree, write manifest and layers, build the candidate, with the sets of `neighbour` beside the new one.

    Raises ArtifactError for what must not ship or is not whole, UsageError for sets that cannot stand in one image.
    """
    plan = bed.plan
    arguments = bed.runtime.command(plan.interpreter, plan.serve)[1]
    secrets = {**leaks.from_environment(os.environ), **secrets}
    found, partial = surveys.take(bed, warmed, secrets, request.allow_partial)
    facts = warmed.facts
    base = engine.resolve(plan.base)
    kinds = sorted(found, key=lambda name: (by_name(name).stability, name))
    document = manifest_document(bed, warmed, kinds, found, facts, request)
    variables = merge.environment(neighbour, document["sets"][0], server_env(plan, warmed.strategy, warmed.kinds))
    if neighbour is not None:
        document["sets"] = sorted([*neighbour.sets, {**document["sets"][0], "plan": document["plan"]}], key=lambda entry: str(entry["name"]))
    manifest_bytes = canonical(document)
    earth = engine.ground(base, plan.root)
    created = image.creation_time(os.environ, base.created)
    packer = image.Packer(plan.root, bed.work.directory / "layers", created, request.compression, earth.existing, earth.user)
    trees = [image.KindTree(name, by_name(name).stability, warmed.tree / name, found[name].files, by_name(name).debug) for name in kinds]
    own = packer.kind_layers(plan.set_name, trees)
    all_kinds = merge.ordered([*own, *(neighbour.layers if neighbour else ())])
    live = list(dict.fromkeys([*(layer.kind for layer in all_kinds), *warmed.kinds, *merge.pinned(neighbour)]))
    start = packer.start_layer(start_zip(plan.interpreter.magic), bed.runtime.shim(plan.interpreter, plan.root), live)
    layers = (*all_kinds, start, packer.manifest_layer(manifest_bytes))
    env = image.environment(
        list((base.config.get("config") or {}).get("Env") or []),
        plan.root,
        variables,
        digest(manifest_bytes),
    )
    recipe = Recipe(
        base=base,
        layers=layers,
        env=env,
        labels=_labels(plan, document["sets"], facts, digest(manifest_bytes), proven=request.prove),
        entrypoint=image.entrypoint(plan.interpreter.executable, plan.root, _program(bed, base)),
        cmd=merge.cmd(neighbour, arguments),
        created=created,
    )
    leaks.check_documents(
        [("manifest.json", manifest_bytes), ("config", canonical({"env": env, "labels": recipe.labels, "cmd": list(recipe.cmd)}))], secrets
    )
    remove(bed.work.directory / "image")  # of an earlier run, whatever became of it: the layers are kept beside it
    built = engine.build(recipe, f"oci:{bed.work.directory / 'image'}", "candidate")
    remarks = [f"set {entry['name']} of {neighbour.image.reference} stays" for entry in neighbour.sets] if neighbour else []
    if neighbour and recipe.cmd != arguments:
        remarks.append(f"CMD stays that of {neighbour.image.reference}: start set {plan.set_name} with arguments of its own")
    remarks += _needs(document["sets"], plan.set_name, facts)
    remarks += [f.line() for f in earth.findings] + [line for one in found.values() for line in _remarks(one)]
    record = {
        "schema": 1,
        "plan": plan.id,
        "strategy": warmed.strategy.name,
        "rounds": list(warmed.rounds),
        "fallen": [f.document() for f in fallen],
        "partial": partial,
        **({"sets": merge.carried(neighbour)} if neighbour else {}),
        "dropped": {name: [{"path": d.path, "reason": d.reason} for d in one.dropped] for name, one in found.items()},
    }
    return Candidate(built, recipe, parse(manifest_bytes), record, env, layer_paths(built), tuple(remarks), left_out(record))


def manifest_document(
    bed: Bed, warmed: Warmed, kinds: Sequence[str], surveys: Mapping[str, Survey], facts: Mapping[str, Any], request: BuildRequest
) -> dict[str, Any]:
    """The manifest (docs/artifact-spec.md). Holds no time, so the same tree gives the same bytes."""
    plan, strategy = bed.plan, warmed.strategy
    program, arguments = bed.runtime.command(plan.interpreter, plan.serve)
    version = bed.runtime.version(plan.interpreter)
    cache_set = {
        "name": plan.set_name,
        "target": {"arch": plan.target.arch, "product": facts.get("gpu.name") if plan.target.is_gpu else None},
        "strategy": {
            "name": strategy.name,
            "title": strategy.title,
            "env": dict(strategy.env),
            "fail_hard": {name: value for name, value in strategy.fail_hard.items() if strategy.refuses.get(name) not in kinds},
            "load_lines": list(strategy.load_lines),
            **({"load_files": list(strategy.load_files)} if strategy.load_files else {}),
        },
        "builder": dict(facts),
        "serve": {
            "program": list(program),
            "argv": list(arguments),
            **({"once": True} if bed.runtime.once else {}),
            "env": server_env(plan, strategy, warmed.kinds),  # as at the bake and in the image's ENV, kinds that stayed empty included
            "served": plan.model.served,
            "offline": plan.env.get("HF_HUB_OFFLINE") == "1",
            "python": plan.interpreter.executable,
            "dist_info": list(plan.interpreter.dist_info),
            "reference": warmed.tokens,
        },
        "neutral": dict(bed.runtime.neutral(version, plan.target, strategy.name)),
        "coverage": {
            "stages": [
                {"name": s.name, "groups": [[[r.prompt_tokens, r.output_tokens] for r in group] for group in s.groups]} for s in bed.script.stages
            ],
            "rounds": [{"round": r["round"], "new": len(r["files"]["new"]), "changed": len(r["files"]["changed"])} for r in warmed.rounds],
            "uncovered": list(plan.uncovered),
        },
        "kinds": [_kind(bed, name, warmed, surveys[name], {**facts, **_env_facts(plan, strategy, warmed.kinds)}) for name in kinds],
        "pinned": list(warmed.kinds),
        **({"virtual": mark} if (mark := virtuals.mark(str(plan.document.get("virtual") or ""), bed.runtime.world(plan.serve))) else {}),
    }
    return {
        "schema": SCHEMA,
        "baker": __version__,
        "root": plan.root,
        "plan": dict(plan.document),
        "compression": compress.by_name(request.compression).document(),
        "sets": [cache_set],
        **({} if request.prove else {"unproven": True}),
    }


def _env_facts(plan: Plan, strategy: Strategy, kinds: Sequence[str]) -> dict[str, str]:
    """What the server's environment was, as facts: rows compare some of it."""
    return {f"env.{name}": value for name, value in server_env(plan, strategy, kinds).items()}


def _kind(bed: Bed, name: str, warmed: Warmed, found: Survey, facts: Mapping[str, Any]) -> dict[str, Any]:
    kind = by_name(name)
    factors = dict(kind.factors(warmed.tree / name))
    facts = {**facts, **{f"factor.{key}": value for key, value in factors.items()}}
    linked = objects.examine(name, warmed.tree / name, [file.path for file in found.files], facts)
    ranks = bed.runtime.world(bed.plan.serve) if bed.plan.target.is_gpu and name in bed.runtime.ranked else 0
    system = bed.executor.probe({"names": linked.facts(), "python": bed.plan.interpreter.executable}) if linked.newest else {}
    return {
        "name": name,
        "variables": pins([name], bed.plan.root),
        "rows": [vars_of(row) for row in (*kind.rows(facts, bed.plan.target), *linked.rows(name, system), *gpu.world_rows(name, ranks))],
        "factors": factors,
        "files": [{k: v for k, v in entry._asdict().items() if v is not None} for entry in found.files],
        "mutable": [vars_of(pattern) for pattern in kind.mutable],
        "copy": list(kind.copy),
        "directories": list(found.directories),
        "path_bound": kind.path_bound,
        **({"entry_depth": kind.depth} if kind.depth else {}),
    }


def vars_of(value: Any) -> dict[str, Any]:
    """A small frozen dataclass as a JSON object."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _program(bed: Bed, base: Base) -> tuple[str, ...]:
    """The base's entry point; for scratch the runtime's program."""
    entry = (base.config.get("config") or {}).get("Entrypoint")
    return tuple(entry) if entry else bed.runtime.command(bed.plan.interpreter, bed.plan.serve)[0]


def _labels(plan: Plan, sets: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], manifest_digest: str, *, proven: bool) -> dict[str, str]:
    """Values of several sets stand in the order of their names, separated by commas."""
    plans = [entry.get("plan", plan.document) for entry in sets]
    products = [str(entry["target"].get("product") or "") for entry in sets]
    kinds = sorted({kind["name"] for entry in sets for kind in entry["kinds"]}, key=lambda name: (by_name(name).stability, name))
    versions = {name: str(facts[f"pkg.{name}"]) for name in PACKAGES if facts.get(f"pkg.{name}")}
    return image.labels(
        root=plan.root,
        plan_id=",".join(str(found["id"]) for found in plans),
        set_name=",".join(str(entry["name"]) for entry in sets),
        arch=",".join(dict.fromkeys(str(entry["target"]["arch"]) for entry in sets)),
        kinds=kinds,
        versions={**versions, "python": plan.interpreter.version},
        manifest_digest=manifest_digest,
        product=",".join(dict.fromkeys(filter(None, products))),
        unproven=not proven,
        virtual=any("virtual" in entry for entry in sets),
    )


def _needs(sets: Sequence[Mapping[str, Any]], name: str, facts: Mapping[str, Any]) -> list[str]:
    """What the new set's kinds still need at run time, programs and system libraries, and whether it is here (case O-16)."""
    lines = []
    for kind in next(entry for entry in sets if entry["name"] == name)["kinds"]:
        needed = [row for row in kind["rows"] if row["op"] == "present"]
        libraries = [row["fact"].removeprefix("lib.") for row in needed if row["fact"].startswith("lib.")]
        lines += [f"{kind['name']} needs {', '.join(libraries)} at run time"] if libraries else []
        for row in needed:
            if row["fact"].startswith("tool."):
                here = facts.get(row["fact"])
                lines.append(f"{kind['name']} needs {row['fact'][5:]} at run time: " + (str(here) if here else f"ABSENT HERE: {row['remedy']}"))
    return lines


def _remarks(found: Survey) -> list[str]:
    lines = [f"{found.kind}: {len(found.files)} files, {found.size} bytes"]
    lines += [f"{found.kind}: left out {count} files: {reason}" for reason, count in found.counts.items()]
    return lines + [finding.line() for finding in found.findings]


def export(
    engine: Engine, candidate: Candidate, target: tuple[str, Sequence[str]], before: str, proof: Proof | None, fallen: Sequence[Fallen]
) -> tuple[Image, str]:
    """Write the image under its tags, with bake record and proof attached, all at once. `target`: layout and tags; `before`: digest at the first tag.

    Raises ArtifactError when another build wrote there since `before` was read, or when the bytes are not those that were proved.
    """
    directory, tags = target
    documents = [(RECORD_TYPE, canonical({**candidate.record, "fallen": [f.document() for f in fallen]}))]
    if proof is not None:
        documents.append((PROOF_TYPE, canonical(proof.document)))
    built = engine.publish(candidate.recipe, directory, tags, documents, {tags[0]: before})
    if built.digest != candidate.image.digest:
        raise ArtifactError(
            "the exported image is not the one that was proved",
            code="export-differs",
            found=built.digest,
            expected=candidate.image.digest,
            remedy="report it",
        )
    return built, f"{directory}:{tags[0]}"
