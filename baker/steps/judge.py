"""Pure judgement of a proof: results in, findings out. A hard finding means that the image is not proven.

- every start: `start` said compatible; no file new, changed or gone in live, HOME and TMPDIR but what patterns with reasons allow; pristine
  untouched; every request of the matrix counted; the reference tokens equal those of the cold start; the strategy's load line was printed;
- the recorded start: no compile event, every torch process observed, and the same recorder saw at least one event in the cold round;
- what was not isolated, and tokens that prove nothing, are soft findings: they are said, not hidden.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from glob import escape
from typing import Any

from baker.caches import ALL as KINDS
from baker.caches import by_name
from baker.inside.finding import Finding
from baker.inside.job import JobResult
from baker.inside.manifest import CacheSet, Pattern
from baker.runtimes.base import Runtime
from baker.spec import Interpreter
from baker.steps import loads, virtually
from baker.steps.changes import Changes, compare, expected_live, merge
from baker.steps.rounds import stage_times, transient_patterns

MIN_PROMPTS = 8  # design 5.6, "Tokens"
MIN_TOKENS = 24
MIN_DISTINCT = 10
STEP_RATIO = 1.15  # design: no slower a step
STEP_FLOOR_S = 0.0005  # below that the stream came in one burst, and the quotient is no step
FIRST_RATIO = 3.0  # design 5.6, to be calibrated: hence soft
FIRST_FLOOR_S = 0.25  # below that it is the scheduler's noise on a busy machine, not a compiler
SHOWN = 12
OWN = (Pattern("baker-status.json", "start's own status file, where /run is not writable"),)


LeftOut = Mapping[str, Sequence[str]]  # kind -> paths that --allow-partial left out of the image


def changes(result: JobResult, cache_set: CacheSet, root: str, runtime: Runtime, interpreter: Interpreter, left_out: LeftOut) -> Changes:
    """Everything that a proof start changed: live against the manifest, pristine, HOME and TMPDIR against before."""
    parts = []
    for kind in cache_set.kinds:
        live, pristine = f"live/{kind.name}", f"sets/{kind.name}"
        after = result.after.get(live, {})
        again = [Pattern(escape(path), "left out by --allow-partial, so a start may write it again") for path in left_out.get(kind.name, ())]
        again += [Pattern(pattern, "a choice by time, left out of a bake without the GPU") for pattern in virtually.left_out(cache_set, kind.name)]
        expected = expected_live(kind.files, f"{root}/sets/{cache_set.name}/{kind.name}", after)
        parts.append(compare(live, expected, after, [*kind.mutable, *again]))
        parts.append(compare(pristine, result.before.get(pristine, {}), result.after.get(pristine, {}), ()))
    for name in empty_kinds(cache_set):
        parts.append(compare(f"live/{name}", {}, result.after.get(f"live/{name}", {}), by_name(name).mutable))
    for name in ("home", "tmp"):
        patterns = [*transient_patterns(runtime, interpreter, name), *(OWN if name == "tmp" else ())]
        parts.append(compare(name, result.before.get(name, {}), result.after.get(name, {}), patterns))
    return merge(parts)


def empty_kinds(cache_set: CacheSet) -> list[str]:
    """Kinds whose variable is pinned and that came out empty: a warm start must leave them so."""
    filled = {kind.name for kind in cache_set.kinds}
    known = {kind.name for kind in KINDS}
    return [name for name in cache_set.raw.get("pinned") or [] if name not in filled and name in known]


def start_verdict(result: JobResult) -> str:
    """The word that `start` printed: compatible, partly, cold; or "none"."""
    for line in result.lines:
        if line.name == "start-verdict":
            return next((word for word in ("compatible", "partly", "cold") if f'"{word}"' in line.text), "none")
    return "none"


def expected_tokens(cache_set: CacheSet) -> list[list[int]]:
    """The cold start's reference tokens, from the manifest."""
    return [list(tokens) for tokens in cache_set.serve.get("reference") or []]


def compare_tokens(tokens: Sequence[Sequence[int]], cache_set: CacheSet) -> dict[str, Any]:
    """How many prompts gave the very same ids; the first difference by prompt and position."""
    expected = expected_tokens(cache_set)
    equal = sum(1 for got, want in zip(tokens, expected, strict=False) if list(got) == want)
    first = None
    for prompt, (got, want) in enumerate(zip(tokens, expected, strict=False)):
        position = next((i for i, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1]), None)
        if position is None and len(got) != len(want):
            position = min(len(got), len(want))
        if position is not None:
            first = {"prompt": prompt, "position": position, "cold": want[position : position + 4], "baked": list(got[position : position + 4])}
            break
    return {"prompts": len(expected), "equal": equal, "length": min((len(t) for t in expected), default=0), "first_difference": first}


def start(name: str, result: JobResult, changed: Changes, tokens: Sequence[Sequence[int]], cache_set: CacheSet) -> list[Finding]:
    """Findings of one start."""
    found = []
    verdict = start_verdict(result)
    if verdict != "compatible":
        found.append(
            Finding(
                "proof-not-compatible",
                "hard",
                "",
                f"{name}: start did not find the image compatible on its own builder",
                verdict,
                "compatible",
                "read the log",
            )
        )
    if changed.count:
        paths = [*changed.new, *changed.changed, *(f"{p} (gone)" for p in changed.gone)]
        found.append(
            Finding(
                "proof-new-files",
                "hard",
                "",
                f"{name}: the start changed files: {', '.join(paths[:SHOWN])}",
                f"{len(changed.new)} new, {len(changed.changed)} changed, {len(changed.gone)} gone",
                "none",
                "the caches did not hit as baked: the paths say which kind; bake again or report the pattern",
            )
        )
    uncounted = [f"{stage.name}: {request.why}" for stage in result.stages for request in stage.requests if not request.counted]
    if uncounted:
        found.append(
            Finding("proof-uncounted", "hard", "", f"{name}: requests did not have their lengths: {uncounted[0]}", len(uncounted), 0, "read the log")
        )
    match = compare_tokens(tokens, cache_set)
    if not (virtually.baked(cache_set) or cache_set.serve.get("once")) and (match["equal"] != match["prompts"] or match["prompts"] == 0):
        found.append(
            Finding(
                "proof-tokens",
                "hard",
                "",
                f"{name}: tokens differ from the cold start's: {match['first_difference']}",
                f"{match['equal']} of {match['prompts']} prompts equal",
                "all equal",
                "other weights than at bake, or a cache that is hit and wrong: compare the weights first",
            )
        )
    found += loads.findings(name, result, cache_set)
    refused = [line.text for line in result.lines if line.kind == "refused"]
    if refused:
        found.append(
            Finding("proof-refused", "hard", "", f"{name}: the runtime refused an artifact: {refused[0][-300:]}", len(refused), 0, "bake again")
        )
    return found


def recorder(recorded: JobResult | None, cold: Mapping[str, Any], once: bool = False) -> list[Finding]:
    """Findings of the recorded start (none when an earlier start failed already), and of the recorder itself.

    `once`: a program, which may do without torch; then any process that the recorder reported from is enough.
    """
    if recorded is None:
        return []
    found = []
    if recorded.events:
        shown = "; ".join(f"{e.kind} in {e.stage}: {e.detail[:120]}" for e in recorded.events[:3])
        found.append(
            Finding(
                "proof-events", "hard", "", f"recorded: the start compiled: {shown}", len(recorded.events), 0, "the detail names what was compiled"
            )
        )
    blind = [f"{p.pid} {p.argv[:80]}" for p in recorded.processes if p.torch and not p.observed]
    if blind:
        found.append(
            Finding("proof-unobserved", "hard", "", f"recorded: torch processes without the recorder: {'; '.join(blind)}", len(blind), 0, "report it")
        )
    if not any(p.torch or (once and p.observed) for p in recorded.processes):
        found.append(Finding("proof-unobserved", "hard", "", "recorded: no torch process was seen at all", 0, ">= 1", "report it"))
    seen = ((cold.get("rounds") or [{}])[0]).get("event_count", 0)
    if not seen:
        text = "the recorder saw no compile event in the cold round, so its zero proves nothing"
        remedy = "files alone prove this one: what compiles without a compiler's process, such as Numba, is no event" if once else "report it"
        found.append(Finding("recorder-blind", "soft" if once else "hard", "", text, 0, ">= 1", remedy))
    return found


def isolation(bare: Sequence[JobResult]) -> list[Finding]:
    """What was not isolated (soft)."""
    if not bare:
        return []
    found = []
    if any(result.network != "none" for result in bare):
        found.append(
            Finding("isolation-network", "soft", "", "the proof shared this machine's network", "host", "own network namespace", "run baker as root")
        )
    remarks = sorted({remark for result in bare for remark in result.remarks if "uid" in remark.lower()})
    if remarks:
        found.append(
            Finding(
                "isolation-uid",
                "soft",
                "",
                f"the proof ran as baker's own user: {remarks[0]}",
                None,
                None,
                "put model and runtime where any user may read",
            )
        )
    return found


def step_time(bare: Sequence[JobResult], cold: Mapping[str, Any]) -> list[Finding]:
    """A soft finding for each stage whose decode step is slower than in the last warm-up round (same machine, full matrix)."""
    rounds = cold.get("rounds") or []
    baseline = rounds[-1].get("stages", {}) if rounds else {}
    found = []
    for name in baseline:
        steps = [t.step for result in bare for stage in result.stages if stage.name == name and (t := stage_times(stage)) is not None]
        before = baseline[name].get("step_s", 0.0)
        if steps and before > STEP_FLOOR_S and min(steps) > STEP_RATIO * before:
            ratio = min(steps) / before
            found.append(
                Finding(
                    "step-slower",
                    "soft",
                    "",
                    f"{name}: in every start a decode step takes at least {ratio:.2f} times that of the last warm-up round",
                    round(ratio, 2),
                    f"<= {STEP_RATIO}",
                    "measure on an idle machine",
                )
            )
    return found


def first_requests(bare: Sequence[JobResult]) -> list[Finding]:
    """A soft finding for a stage whose first request is slow in every bare start: compilation that leaves no file shows only in time (design 5.6)."""
    slow: dict[str, list[float]] = {}
    for result in bare:
        for stage in result.stages:
            ttft = [request.ttft_s for request in stage.requests if request.counted]
            if len(ttft) > 1 and ttft[0] > max(FIRST_RATIO * statistics.median(ttft[1:]), FIRST_FLOOR_S):
                slow.setdefault(stage.name, []).append(ttft[0] / statistics.median(ttft[1:]))
    return [
        Finding(
            "first-request-slow",
            "soft",
            "",
            f"{name}: its first request is slow in every start: something compiles in memory",
            f"{min(ratios):.1f} times the median of the others",
            f"<= {FIRST_RATIO}",
            "look for a compiler that keeps no files (NVRTC, CuTe DSL, the driver's JIT)",
        )
        for name, ratios in slow.items()
        if len(ratios) == len(bare)
    ]


def meaning(cache_set: CacheSet, weights: str) -> list[Finding]:
    """When equal tokens prove nothing (soft, said)."""
    expected = expected_tokens(cache_set)
    if cache_set.serve.get("once"):
        text = "a program's results are not compared: baker does not know what it computes"
        return [Finding("results-not-compared", "soft", "", text, "runtime command", "tokens of a server", "let the program check its own results")]
    if weights == "dummy":
        return [
            Finding("tokens-not-meaningful", "soft", "", "dummy weights: equal tokens prove little", "dummy", "real", "prove with the real weights")
        ]
    poor = sum(1 for tokens in expected if len(set(tokens)) < MIN_DISTINCT or len(tokens) < MIN_TOKENS)
    if poor or len(expected) < MIN_PROMPTS:
        return [
            Finding(
                "tokens-not-meaningful",
                "soft",
                "",
                f"{poor} of {len(expected)} reference prompts give fewer than {MIN_DISTINCT} distinct tokens",
                poor,
                0,
                "use the real model: a degenerate one repeats itself and equality proves nothing",
            )
        ]
    return []


def partial(left_out: LeftOut) -> list[Finding]:
    """What the image lacks because the user allowed it (soft, said)."""
    paths = [f"{kind}/{path}" for kind, several in left_out.items() for path in several]
    text = f"the image is partial: {', '.join(paths[:SHOWN])} left out"
    return [Finding("files-left-out", "soft", "", text, len(paths), 0, "bake again without --allow-partial")] if paths else []
