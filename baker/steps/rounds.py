"""One round: a server start and one pass over the matrix; and what a start says about itself."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from baker.caches import by_name
from baker.errors import WarmupError
from baker.inside.job import JobResult, StageResult
from baker.inside.manifest import Pattern
from baker.runtimes.base import Runtime
from baker.spec import Interpreter
from baker.steps.changes import Changes, compare, merge

REFERENCE = "reference"
# CUDA's, torch's and the kernel's words for it.
_OUT_OF_MEMORY = re.compile(r"out ?of ?memory|\boom\b|oom-?kill|(?:can't|cannot|could not|failed to|unable to) allocate\b.*memory", re.IGNORECASE)

_REMEDY = {
    "died": "read the log; the first error is the cause, later ones follow from it",
    "not-ready": "the server never answered a completion; raise --ready-timeout if it only loads slowly, else read the log",
    "failed": "the server refused or broke a request of the matrix; read the log, or leave that entry out of the profile",
    "unauthorized": "set VLLM_API_KEY to the key that the server wants, or take --api-key out of the arguments; it is stored nowhere",
    "deadline": "raise the deadline or use a smaller profile",
}


def require_ok(result: JobResult, *, name: str, log: str, driver: str = "warm-up") -> None:
    """Raise WarmupError with the first error of the server's log and the log's path, unless the start went well."""
    if result.status == "ok":
        return
    stage = result.stage if result.stage != "start" else ""
    where = f"in stage {stage}" if stage else "before it was ready"
    remedy = _REMEDY.get(result.status, "read the log")
    if _OUT_OF_MEMORY.search(result.error):
        remedy = "lower --max-num-seqs, --max-model-len or --gpu-memory-utilization" + (f", or leave {stage} out of the profile" if stage else "")
    elif "for option 'gpu-name'" in result.error:
        remedy = "the assembler (ptxas) does not know this architecture: use a newer triton, or set TRITON_PTXAS_PATH in the profile's env"
    raise WarmupError(
        f"{driver} {name}: the server {_verb(result)} {where}",
        code=f"server-{result.status}",
        found=result.error or f"exit code {result.exit_code}",
        expected="every request of the matrix answered",
        remedy=f"{remedy} ({log})",
        log=log,
        stage=result.stage,
    )


def _verb(result: JobResult) -> str:
    return {
        "died": f"died (exit {result.exit_code})",
        "not-ready": "did not get ready",
        "failed": "failed a request",
        "unauthorized": "refused the request for want of a key (401 or 403)",
        "deadline": "ran past the deadline",
    }.get(result.status, result.status)


def transient_patterns(runtime: Runtime, interpreter: Interpreter, root: str) -> list[Pattern]:
    """The runtime's patterns for one of the roots outside of the caches ("home", "tmp")."""
    return [t.pattern for t in runtime.transient(runtime.version(interpreter)) if t.root == root]


def changes_of(result: JobResult, kinds: Sequence[str], runtime: Runtime, interpreter: Interpreter) -> Changes:
    """All roots of a warm-up round: live before against live after, and everything that appeared in HOME and TMPDIR."""
    parts = []
    for kind in kinds:
        name = f"live/{kind}"
        parts.append(compare(name, result.before.get(name, {}), result.after.get(name, {}), by_name(kind).mutable))
    for name in ("home", "tmp"):
        parts.append(compare(name, result.before.get(name, {}), result.after.get(name, {}), transient_patterns(runtime, interpreter, name)))
    return merge(parts)


def phases(result: JobResult) -> dict[str, float]:
    """Seconds a phase, by the runtime's own lines (the last one wins), and `ready`: spawn to the first completion."""
    found = {line.name: line.value for line in result.lines if line.kind == "phase" and line.value is not None}
    return {**found, **({"ready": result.ready_s} if result.ready_s is not None else {})}


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Medians over the counted requests of one stage, seconds: time to first token of the first request and of the others; one decode step."""

    first_ttft: float
    ttft: float
    step: float

    def document(self) -> dict[str, float]:
        """As JSON object, microsecond resolution."""
        return {"first_ttft_s": round(self.first_ttft, 6), "ttft_s": round(self.ttft, 6), "step_s": round(self.step, 6)}


def stage_times(stage: StageResult) -> StageTimes | None:
    """None when no request of the stage counted."""
    counted = [r for r in stage.requests if r.counted]
    if not counted:
        return None
    steps = [(r.total_s - r.ttft_s) / (r.output_tokens - 1) for r in counted if r.output_tokens > 1]
    return StageTimes(counted[0].ttft_s, statistics.median(r.ttft_s for r in counted), statistics.median(steps) if steps else 0.0)


def times(result: JobResult) -> dict[str, dict[str, float]]:
    """Stage name -> medians."""
    return {stage.name: t.document() for stage in result.stages if (t := stage_times(stage)) is not None}


def reference_tokens(result: JobResult) -> list[list[int]]:
    """The token ids of the reference stage, one list a prompt; [] when it was not played."""
    return next(([r.tokens for r in stage.requests] for stage in result.stages if stage.name == REFERENCE), [])


def uncounted(result: JobResult) -> list[str]:
    """Requests of the matrix that do not count, with the reason (case O-41)."""
    return [f"{s.name}[{i}]: {r.why}" for s in result.stages for i, r in enumerate(s.requests) if not r.counted]


def record(number: int, result: JobResult, changes: Changes) -> dict[str, Any]:
    """One round as it stands in the bake record."""
    return {
        "round": number,
        "phases_s": {k: round(v, 3) for k, v in phases(result).items()},
        "stages": times(result),
        "files": changes.document(),
        "events": [{"kind": e.kind, "detail": e.detail[:300], "stage": e.stage} for e in result.events[:200]],
        "event_count": len(result.events),
        "counters": dict(result.counters),
        "lines": [{"name": line.name, "kind": line.kind, "text": line.text[:500]} for line in result.lines if line.kind != "phase"][:50],
        "uncounted": uncounted(result),
        "remarks": list(result.remarks),
    }
