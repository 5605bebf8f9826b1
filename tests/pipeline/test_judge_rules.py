"""Rules of the judge that no simulated server can show alone: hand-made results, nothing started."""

from __future__ import annotations

from typing import Any

from baker.inside.job import Event, JobResult, Process
from baker.inside.manifest import CacheSet
from baker.steps import judge

COLD = {"rounds": [{"event_count": 3}]}


def _result(**changes: Any) -> JobResult:
    fields: dict[str, Any] = {"status": "ok", "processes": [Process(1, "python -m server", True, True)], **changes}
    return JobResult(**fields)


def _codes(recorded: JobResult | None, cold: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in judge.recorder(recorded, cold)]


def test_an_observed_start_without_an_event_has_no_finding() -> None:
    assert _codes(_result(), COLD) == []


def test_a_compile_event_fells_the_proof_and_is_quoted() -> None:
    (finding,) = judge.recorder(_result(events=[Event("child-compiler", 7, "g++ x.cpp -o x.so", "single", 0.5)]), COLD)
    assert (finding.code, finding.severity, finding.found) == ("proof-events", "hard", 1)
    assert "child-compiler in single: g++ x.cpp" in finding.message


def test_a_recorder_that_saw_nothing_in_the_cold_round_proves_nothing() -> None:
    assert _codes(_result(), {"rounds": [{"event_count": 0}]}) == [("recorder-blind", "hard")]
    assert _codes(_result(), {}) == [("recorder-blind", "hard")]


def test_a_torch_process_must_be_seen_and_observed() -> None:
    assert _codes(_result(processes=[]), COLD) == [("proof-unobserved", "hard")]
    assert _codes(_result(processes=[Process(1, "a", True, True), Process(2, "b", True, False)]), COLD) == [("proof-unobserved", "hard")]
    assert _codes(_result(processes=[Process(1, "a", True, True), Process(2, "sh", False, False)]), COLD) == []


def _meaning(reference: list[list[int]], weights: str = "real") -> list[tuple[str, str]]:
    return [(f.code, f.severity) for f in judge.meaning(CacheSet("cpu", {}, {}, {}, {"reference": reference}, {}, ()), weights)]


def test_degenerate_tokens_are_said_to_prove_nothing() -> None:
    good = [list(range(n, n + 24)) for n in range(8)]
    assert _meaning(good) == []
    for poor in ([[7] * 24] * 8, good[:7], [*good[:7], list(range(23))], []):
        assert _meaning(poor) == [("tokens-not-meaningful", "soft")]
    assert _meaning(good, "dummy") == [("tokens-not-meaningful", "soft")]


def test_what_was_not_isolated_is_soft_and_said() -> None:
    found = judge.isolation([_result(network="host", remarks=["server runs as uid 0, not 12345: reason"])])
    assert [(f.code, f.severity) for f in found] == [("isolation-network", "soft"), ("isolation-uid", "soft")]
    assert judge.isolation([_result(network="none")]) == []


def test_left_out_files_are_a_soft_finding() -> None:
    (finding,) = judge.partial({"vllm": ["a/model", "b/model"]})
    assert (finding.severity, finding.found) == ("soft", 2)
    assert "vllm/a/model" in finding.message
    assert judge.partial({}) == []
