"""The driver against the simulator, the slower half: scripted faults, each with real processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from baker.inside.job import Request, Stage, Watch
from tests.sim.drive import completion

QUIET = {"record": ""}  # not recorded: a third of a second faster


def test_healthy_is_not_ready(make: Any) -> None:
    """O-38: /health and /v1/models answer 200, completions 503: no error, and no readiness."""
    bench = make(listen_early=True, unavailable_s=0.7)
    result = bench.run(bench.job(1, **QUIET))
    assert result.status == "ok"
    assert (result.ready_s or 0) > 0.7


def test_a_start_that_hangs_is_ended(make: Any) -> None:
    bench = make(hang=True)
    result = bench.run(bench.job(1, ready_s=0.8, grace_s=0.5, **QUIET))
    assert result.status == "not-ready"
    assert "last answer: ConnectionRefusedError" in result.error


def test_death_in_a_stage_names_it(make: Any) -> None:
    """O-37 (b): other words than (a), the stage is named, what was played before is kept."""
    bench = make(die={"when": "request", "at": 3, "first": "RuntimeError: scripted death in stage two"})
    model = str(bench.model)
    stages = [Stage(name, [[completion(model, n, 16, 2)]]) for n, name in enumerate(("first", "second", "third"), 1)]
    result = bench.run(bench.job(1, stages, **QUIET))
    assert (result.status, result.stage) == ("died", "second")
    assert result.error == "RuntimeError: scripted death in stage two"
    assert [stage.name for stage in result.stages] == ["first", "second"]
    assert result.stages[0].requests[0].counted


def test_killed_by_the_kernel(make: Any) -> None:
    bench = make(die={"when": "start", "signal": 9})
    result = bench.run(bench.job(1, **QUIET))
    assert result.status == "died"
    assert "EngineCore failed to start" in result.error or "worker died" in result.error


def test_a_cut_stream_is_a_failure(make: Any) -> None:
    bench = make(cut_after=3)
    result = bench.run(bench.job(1, **QUIET))
    assert (result.status, result.stage) == ("failed", "one")
    assert not result.stages[0].requests[0].counted
    assert result.stages[0].requests[0].status == 0


def test_a_key_of_the_driver_reaches_the_server(make: Any) -> None:
    bench = make()
    result = bench.run(bench.job(1, **QUIET), env={"PATH": "/usr/bin:/bin", "VLLM_API_KEY": "from-the-driver"})
    assert result.status == "ok"
    assert "from-the-driver" not in Path(bench.job(1).out.replace("result.json", "result.job")).read_text()


def test_unknown_model_name_is_refused_soon(make: Any) -> None:
    bench = make()
    result = bench.run(bench.job(1, ready=completion("other", 0, 4, 1), **QUIET))
    assert result.status == "failed"
    assert "HTTP 404" in result.error
    assert "does not exist" in result.error
    assert result.wall_s < 10


def test_completions_need_no_chat_template(make: Any) -> None:
    """O-42: the chat endpoint answers 400, the warm-up never needs it."""
    bench = make(no_chat=True)
    chat = Request("/v1/chat/completions", {"model": str(bench.model), "messages": [{"role": "user", "content": "x"}]})
    assert bench.run(bench.job(1, **QUIET)).status == "ok"
    result = bench.run(bench.job(2, [Stage("chat", [[chat]])], **QUIET))
    assert (result.status, result.stage) == ("failed", "chat")
    assert "a chat template is required" in result.error


def test_the_second_start_still_compiles(make: Any) -> None:
    """O-06: new files in start one and two, none in start three; the inventories say which."""
    bench = make(paths=["A/x", "B/y"])
    results = [bench.run(bench.job(n, [], **QUIET)) for n in (1, 2, 3)]
    new = [sorted(set(r.after["inductor"]) - set(r.before["inductor"])) for r in results]
    assert "A/x" in new[0]
    assert new[1:] == [["B/y"], []]


def test_refused_artifact_stops_the_run_early(make: Any) -> None:
    bench = make()
    watch = [Watch("aot-refused", "refused", "load failure from"), Watch("init", "phase", r"init engine .* took ([0-9.]+) s")]
    job = {"watch": watch, "stop_on": ["aot-refused"]}
    env = [bench.env(n, VLLM_USE_AOT_COMPILE="1") for n in (1, 2)]
    first, second = (bench.run(bench.job(n, env=env[n - 1], **job)) for n in (1, 2))
    assert [stage.name for stage in first.stages] == ["one"]
    assert (second.status, second.stages) == ("ok", [])
    line = next(line for line in second.lines if line.name == "aot-refused")
    assert "finalize_loading" in line.text
    assert (line.kind, line.stage) == ("refused", "start")
    phase = next(line for line in second.lines if line.name == "init")
    assert phase.value is not None
    assert phase.value < phase.at_s
    changed = {path for path, entry in second.after["vllm"].items() if second.before["vllm"].get(path) != entry}
    assert any(path.endswith("rank_0_0/model") for path in changed)
    assert any("aotautograd" in path for path in changed)


def test_a_torch_process_without_recorder_is_unobserved(make: Any) -> None:
    bench = make(unobserved=True)
    result = bench.run(bench.job(1, []))
    unseen = [process for process in result.processes if process.torch and not process.observed]
    assert len(unseen) == 1
    assert " -I -c " in unseen[0].argv


def test_triton_kernels_are_seen_and_hits_are_not_events(make: Any) -> None:
    bench = make(kernels=["fused_moe", "rms_norm"])
    cold, warm = bench.run(bench.job(1)), bench.run(bench.job(2))
    compiled = [event.detail.split()[0] for event in cold.events if event.kind == "triton-compile"]
    assert compiled == ["fused_moe", "rms_norm"]
    assert warm.events == []


def test_odd_files_are_listed_and_never_opened(make: Any) -> None:
    bench = make(odd_files=True)
    result = bench.run(bench.job(1, [], **QUIET))
    found = result.after["inductor"]
    assert found["fifo"][0] == found["socket"][0] == "other"
    assert found["link"] == ["link", 4, "fifo"]


def test_a_writer_that_outlives_the_server_is_ended_before_the_inventory(make: Any) -> None:
    """O-14: nothing is hashed while a process of ours still writes."""
    bench = make(writes_after_end_s=30)
    result = bench.run(bench.job(1, [], grace_s=0.3, **QUIET))
    assert result.status == "ok"
    assert any("python -c import os, sys, time" in remark and "killed" in remark for remark in result.remarks)
    size = (bench.live / "inductor" / "late.bin").stat().st_size
    assert result.after["inductor"]["late.bin"][1] == size
    time.sleep(0.05)
    assert (bench.live / "inductor" / "late.bin").stat().st_size == size


def test_deadline_ends_a_run(make: Any) -> None:
    bench = make(step_s=0.2)
    stages = [Stage("slow", [[completion(str(bench.model), 1, 16, 100)]])]
    result = bench.run(bench.job(1, stages, deadline_s=1.5, **QUIET))
    assert (result.status, result.stage) == ("deadline", "slow")
    assert result.stages[0].requests[0].why.startswith("cut off")


def test_port_in_use_is_not_taken_for_the_server(make: Any) -> None:
    import socket

    bench = make()
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = bench.run(bench.job(1, port=other.getsockname()[1], **QUIET))
    assert result.status == "failed"
    assert "is in use by another process" in result.error
