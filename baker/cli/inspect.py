"""`baker inspect`: what an image says of itself, and whether its bytes agree."""

from __future__ import annotations

from typing import Any

import click

from baker.cli.build import default_engine
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.engines.base import Image
from baker.errors import ArtifactError
from baker.pack.validate import validate
from baker.steps import images
from baker.steps.compare import rows
from baker.steps.images import layer_table, open_image


@baker_command("inspect")
@click.argument("reference", metavar="REF")
@click.option("--files", is_flag=True, help="List every file with its size and hash.")
def command(console: Console, reference: str, files: bool) -> int:
    """Show the manifest, kinds, sizes, coverage, proof and serve command of the image REF.

    Every digest, size and diff ID is recomputed from the blobs.
    """
    image = default_engine().read(reference)
    opened = open_image(default_engine(), image)
    problems = [finding for finding in validate(image.blobs.parent.parent, _descriptor(image)) if finding.severity == "hard"]
    proof = opened.proofs[-1] if opened.proofs else None
    names = images.set_names(opened)
    of_set = {name: {"verdict": images.verdict_of(opened, name), "plan": images.plan_of(opened, name).get("id")} for name in names}
    sets = [{**_set(entry, files), **of_set[entry["name"]]} for entry in opened.manifest.raw["sets"]]
    verdicts = {entry["verdict"] for entry in sets}
    document: dict[str, Any] = {
        "reference": image.reference,
        "digest": image.digest,
        "plan": opened.manifest.plan.get("id"),
        "root": opened.manifest.root,
        "verdict": verdicts.pop() if len(verdicts) == 1 else "mixed",
        "proofs": len(opened.proofs),
        "sets": sets,
        "layers": [dict(row) for row in layer_table(image)],
        "labels": (image.config.get("config") or {}).get("Labels") or {},
        "entrypoint": (image.config.get("config") or {}).get("Entrypoint"),
        "cmd": (image.config.get("config") or {}).get("Cmd"),
        "uncovered": opened.manifest.plan.get("uncovered", []),
        "findings": [finding.document() for finding in problems],
        "fallen": list(opened.record.get("fallen", ())),
        "proof": proof,
    }
    lines = [
        f"{image.reference}@{image.digest}",
        f"plan      {document['plan']}",
        f"root      {document['root']}",
        f"verdict   {document['verdict']} ({len(opened.proofs)} proofs attached)",
        f"serve     {' '.join([*(document['entrypoint'] or []), *(document['cmd'] or [])])}",
    ]
    for entry in sets:
        lines.append(
            f"set       {entry['name']}: strategy {entry['strategy']}, {entry['builder'].get('gpu.name') or entry['builder'].get('cpu.model')}"
        )
        if len(sets) > 1:
            lines.append(f"  verdict {entry['verdict']}; plan {entry['plan']}")
        lines += [
            f"  kind    {kind['name']}: {kind['count']} files, {kind['bytes']} bytes, {len(kind['rows'])} requirements" for kind in entry["kinds"]
        ]
        lines += [f"  stage   {stage['name']}: {_lengths(stage['groups'])}" for stage in entry["coverage"].get("stages", [])]
        lines += [f"    {file['sha256']}  {file['size']:>10}  {file['path']}" for kind in entry["kinds"] for file in kind.get("files", [])]
    lines += [f"uncovered {entry}" for entry in document["uncovered"]]
    for fallen in opened.record.get("fallen", ()):
        lines.append(f"fell      strategy {fallen['strategy']}: {fallen['reason']}")
    lines += [f"finding   {finding['severity']} {finding['code']}: {finding['message']}" for finding in (proof or {}).get("findings", ())]
    if problems:
        raise ArtifactError(
            f"{reference}: {problems[0].message}",
            code=problems[0].code,
            found=_text(problems[0].found),
            expected=_text(problems[0].expected),
            remedy=problems[0].remedy or "copy or build the image again",
            findings=[finding.document() for finding in problems],
        )
    console.result(document, lines)
    console.table(("layer", "bytes", "digest", "diff ID"), [(row["kind"], row["size"], row["digest"], row["diff_id"]) for row in layer_table(image)])
    if proof:
        console.table(("cold against warm", "cold", "warm", "ratio", ""), [(r.what, r.cold, r.warm, r.ratio, r.unit) for r in rows(proof)])
    return 0


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _descriptor(image: Image) -> dict[str, Any]:
    blob = image.blobs / image.digest.removeprefix("sha256:")
    return {"mediaType": image.manifest.get("mediaType"), "digest": image.digest, "size": blob.stat().st_size}


def _lengths(groups: list[list[list[int]]]) -> str:
    """`5 x (4 prompts of 512 tokens, 100 generated)` for a stage's groups of [prompt, output] lengths."""
    kinds = {(len(group), *group[0]): 0 for group in groups if group}
    for group in groups:
        if group:
            kinds[(len(group), *group[0])] += 1
    return ", ".join(f"{count} x ({batch} prompts of {prompt} tokens, {output} generated)" for (batch, prompt, output), count in kinds.items())


def _set(entry: dict[str, Any], files: bool) -> dict[str, Any]:
    kinds = []
    for kind in entry["kinds"]:
        row = {
            "name": kind["name"],
            "count": len(kind["files"]),
            "bytes": sum(f["size"] for f in kind["files"]),
            "variables": kind["variables"],
            "rows": kind["rows"],
        }
        kinds.append({**row, "files": kind["files"]} if files else row)
    return {
        "name": entry["name"],
        "target": entry["target"],
        "strategy": entry["strategy"].get("name"),
        "builder": entry["builder"],
        "coverage": entry.get("coverage", {}),
        "serve": {k: v for k, v in entry["serve"].items() if k != "reference"},
        "kinds": kinds,
    }
