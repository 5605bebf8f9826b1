"""The proof: starts of the finished image, as it ships, measured (design 5.6).

(1) bare, three times: files, tokens, step time, phases; (2) recorded: compile events, again no file; (3) fail-hard where the strategy allows it.
Each start gets an empty live, a fresh HOME and TMPDIR, an own network and another UID where permitted; what was not isolated is a finding.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from baker.errors import ArtifactError, WarmupError
from baker.inside.finding import Finding
from baker.inside.job import JobResult, Watch
from baker.inside.manifest import CacheSet, Manifest
from baker.steps import judge, virtually
from baker.steps.jobs import Bed, make_job
from baker.steps.rounds import phases, reference_tokens, require_ok, times

SCHEMA = 1
BARE_STARTS = 3  # design 5.6 and 6: warm n >= 3, median
ARTIFACT_TYPE = "application/vnd.baker.proof.v1+json"
START_RULE = Watch("start-verdict", "note", r'"baker": ?"(compatible|partly|cold)"')


@dataclass(frozen=True, slots=True)
class Proof:
    """A measured record. `proven` is true when no finding is hard."""

    document: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def proven(self) -> bool:
        """No hard finding."""
        return all(finding.severity != "hard" for finding in self.findings)


@dataclass(slots=True)
class _Collected:
    starts: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    bare: list[JobResult] = field(default_factory=list)
    recorded: JobResult | None = None


def prove(
    bed: Bed,
    layers: Sequence[Path],
    env: Mapping[str, str],
    digest: str,
    manifest: Manifest,
    cold: Mapping[str, Any],
    say: Callable[[str], None],
) -> Proof:
    """Start the image from `layers` with its own ENV and judge what it did. `cold` is the bake record of the same image."""
    cache_set = next((s for s in manifest.sets if s.name == bed.plan.set_name), None)
    if cache_set is None:
        raise ArtifactError(
            f"the image has no set {bed.plan.set_name!r}, which its plan names",
            code="manifest-damaged",
            found=", ".join(s.name for s in manifest.sets),
            expected=bed.plan.set_name,
            remedy="build it again",
        )
    machine = virtually.here(bed)
    got = _Collected()
    left_out: judge.LeftOut = cold.get("partial") or {}
    hard_env = dict(cache_set.strategy.get("fail_hard") or {})
    runs: list[tuple[str, dict[str, str], bool]] = [(f"bare-{number}", {}, False) for number in range(1, BARE_STARTS + 1)]
    runs.append(("recorded", {}, True))
    if hard_env:
        runs.append(("fail-hard", hard_env, False))
    for name, extra, record in runs:
        bed.work.state("proof", start=name, image=digest)
        say(f"proof: start {name}")
        bed.place.install(layers)
        result = _start(bed, cache_set, name, {**env, **extra}, record, got, left_out)
        if result is None:
            break
        say(f"proof: start {name}: {_summary(result, got.starts[-1])}")
        if any(finding.severity == "hard" for finding in got.findings):
            break  # it has failed already; more starts would only cost time
    findings = [
        *got.findings,
        *judge.isolation(got.bare),
        *([] if machine or virtually.baked(cache_set) else judge.step_time(got.bare, cold)),
        *([] if machine else judge.first_requests(got.bare)),
        *judge.recorder(got.recorded, cold, bed.runtime.once),
    ]
    meaning = [] if machine or virtually.baked(cache_set) else judge.meaning(cache_set, bed.plan.weights)
    findings += [*meaning, *virtually.findings(cache_set, machine, got.bare), *judge.partial(left_out)]
    document = _document(bed, digest, cache_set, got, cold, findings, machine)
    return Proof(document, tuple(findings))


def _start(
    bed: Bed, cache_set: CacheSet, name: str, env: Mapping[str, str], record: bool, got: _Collected, left_out: judge.LeftOut
) -> JobResult | None:
    plan = bed.plan
    kinds = [kind.name for kind in cache_set.kinds]
    label = f"{cache_set.strategy.get('name')}-proof-{name}"  # each strategy keeps its own logs
    job = make_job(
        bed,
        name=label,
        env={k: v for k, v in env.items() if k != "PATH"},
        stages=[*bed.script.stages, bed.script.reference],
        kinds=[*kinds, *judge.empty_kinds(cache_set)],
        prefix=(plan.interpreter.executable, "-I", "-S", f"{plan.root}/start", "--"),
        record=record,
        isolate=True,
    )
    pristine = {f"sets/{kind}": f"{plan.root}/sets/{cache_set.name}/{kind}" for kind in kinds}
    job = replace(job, roots={**job.roots, **pristine}, watch=[*job.watch, START_RULE])
    result = bed.place.run(job, name=label)
    try:
        require_ok(result, name=name, log=job.log, driver="proof")
    except WarmupError as error:
        got.findings.append(Finding("proof-start-failed", "hard", "", error.message, error.found, error.expected, error.remedy))
        got.starts.append({"name": name, "status": result.status, "error": result.error, "log": job.log})
        return None
    changes = judge.changes(result, cache_set, plan.root, bed.runtime, plan.interpreter, left_out)
    tokens = reference_tokens(result)
    got.findings += judge.start(name, result, changes, tokens, cache_set)
    got.starts.append(
        {
            "name": name,
            "status": result.status,
            "phases_s": {k: round(v, 3) for k, v in phases(result).items()},
            "stages": times(result),
            "files": changes.document(),
            "tokens": judge.compare_tokens(tokens, cache_set),
            "verdict": judge.start_verdict(result),
            "network": result.network,
            "uid": result.uid,
            "remarks": list(result.remarks),
            **(_recorded(result) if record else {}),
        }
    )
    if record:
        got.recorded = result
    elif name.startswith("bare"):
        got.bare.append(result)
    return result


def _recorded(result: JobResult) -> dict[str, Any]:
    return {
        "events": [{"kind": e.kind, "detail": e.detail[:300], "stage": e.stage} for e in result.events[:200]],
        "event_count": len(result.events),
        "counters": dict(result.counters),
        "processes": [{"pid": p.pid, "argv": p.argv[:200], "torch": p.torch, "observed": p.observed} for p in result.processes],
    }


def _summary(result: JobResult, start: Mapping[str, Any]) -> str:
    files = start["files"]
    tokens = start["tokens"]
    text = f"{start['verdict']}, {len(files['new'])} new, {len(files['changed'])} changed files, tokens {tokens['equal']}/{tokens['prompts']} equal"
    if "event_count" in start:
        text += f", {start['event_count']} compile events"
    init = start["phases_s"].get("engine-init")
    return text + f", ready after {result.ready_s or 0:.1f} s" + (f" (engine init {init:.1f} s)" if init is not None else "")


def _document(
    bed: Bed, digest: str, cache_set: CacheSet, got: _Collected, cold: Mapping[str, Any], findings: Sequence[Finding], machine: bool
) -> dict[str, Any]:
    first = (cold.get("rounds") or [{}])[0]
    cold_phases = first.get("phases_s", {})
    warm_phases = {
        name: statistics.median(values)
        for name in cold_phases
        if (values := [s["phases_s"][name] for s in got.starts if s["name"].startswith("bare") and name in s.get("phases_s", {})])
    }
    hard = [f for f in findings if f.severity == "hard"]
    return {
        "schema": SCHEMA,
        "image": digest,
        "plan": bed.plan.id,
        "set": cache_set.name,
        "verdict": "failed" if hard else "virtual" if machine else "proven",
        "strategy": cache_set.strategy.get("name"),
        "weights": bed.plan.weights,
        "isolation": {
            "executor": bed.executor.name,
            "network": sorted({s["network"] for s in got.starts if "network" in s}),
            "uid": sorted({s["uid"] for s in got.starts if "uid" in s}),
            "home": "fresh",
            "tmpdir": "fresh",
            "live": "empty before each start",
        },
        "cold": {
            "n": 1,
            "phases_s": cold_phases,
            "stages": first.get("stages", {}),
            "order": [stage.name for stage in bed.script.stages if stage.name in first.get("stages", {})],
            "files": len(first.get("files", {}).get("new", ())),
            "events": first.get("event_count", 0),
        },
        "warm": {"n": len(got.bare), "phases_s": {k: round(v, 3) for k, v in warm_phases.items()}},
        "ratio": {k: round(v / cold_phases[k], 4) for k, v in warm_phases.items() if cold_phases[k]},
        "starts": got.starts,
        "findings": [f.document() for f in findings],
    }
