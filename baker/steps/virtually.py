"""What a proof may say when a stand-in driver took part: at the bake (the set is marked), on this machine, or both (ADR 0012).

On a stand-in no kernel runs: tokens and times are not judged and the verdict is `virtual`. On a real GPU a set that was baked without it has
reference tokens of noise: there the starts are compared with one another, and the verdict may be `proven`.
"""

from __future__ import annotations

from collections.abc import Sequence

from baker.inside.finding import Finding
from baker.inside.job import JobResult
from baker.inside.manifest import CacheSet
from baker.steps.jobs import Bed
from baker.steps.rounds import reference_tokens


def baked(cache_set: CacheSet) -> bool:
    """Whether the set was baked on a stand-in driver."""
    return bool(cache_set.raw.get("virtual"))


def here(bed: Bed) -> bool:
    """Whether this machine's driver is a stand-in. Raises MachineError when it cannot be asked."""
    if not bed.plan.target.is_gpu:
        return False
    return bool(bed.executor.probe({"names": ["gpu.virtual"], "python": bed.plan.interpreter.executable}).get("gpu.virtual"))


def left_out(cache_set: CacheSet, kind: str) -> list[str]:
    """Patterns of the kind's files that a bake with --virtual leaves out, so that the first start writes them."""
    mark = cache_set.raw.get("virtual")
    patterns = mark.get("left_out") if isinstance(mark, dict) else None
    if not isinstance(patterns, list):
        return []
    return [str(pattern).partition("/")[2] for pattern in patterns if str(pattern).startswith(f"{kind}/")]


def findings(cache_set: CacheSet, machine: bool, bare: Sequence[JobResult]) -> list[Finding]:
    """What is not judged, said; and on a real GPU whether the starts of a virtually baked set agree with one another."""
    if machine:
        text = "virtual GPU: no kernel ran, so tokens, steps and times are not meaningful"
        return [Finding("virtual-gpu", "soft", "", text, "a stand-in driver", "a real GPU", "prove on the real GPU: baker prove REF")]
    if not baked(cache_set):
        return []
    text = "the set was baked without the GPU: its reference tokens are noise, so starts are compared with one another only"
    found = [Finding("tokens-no-reference", "soft", "", text, None, None, "bake on the GPU for an equality proof and tuned kernels")]
    answers = [reference_tokens(result) for result in bare]
    if any(answer != answers[0] for answer in answers[1:]):
        different = sum(answer != answers[0] for answer in answers)
        found.append(Finding("proof-tokens", "hard", "", "starts of one image give different tokens", different, 0, "do not use it: bake on the GPU"))
    return found
