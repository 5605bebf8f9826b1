"""The driver against the simulator: outcomes of whole runs, each with real processes."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.inside.job import Request, Stage, Watch
from tests.sim.drive import Bench, completion, leftovers, requests_of
from tests.sim.install import make_runtime
from tests.sim.model import make_model

QUIET = {"record": ""}  # not recorded: a third of a second faster


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def make(python: str, tmp_path: Path) -> Iterator[Any]:
    """A bench for a scripted model; whatever the test did, none of its processes may be left."""
    yield lambda **script: Bench(tmp_path / "work", python, make_model(tmp_path / "model", script))
    assert leftovers(tmp_path) == []


def test_cold_then_warm(make: Any) -> None:
    bench = make()
    cold, warm = bench.run(bench.job(1)), bench.run(bench.job(2))
    assert (cold.status, warm.status) == ("ok", "ok")
    kinds = [event.kind for event in cold.events]
    assert kinds.count("child-compiler") == 2
    assert kinds.count("inductor-miss") >= 2
    assert {event.stage for event in cold.events} == {"start"}
    assert warm.events == []
    assert warm.counters == {"inductor.fxgraph_cache_hit": 2, "aot_autograd.autograd_cache_hit": 2}
    assert cold.before["inductor"] == {}
    assert cold.after == warm.before == warm.after
    assert all(kind == "file" and len(sha) == 64 for kind, _, sha in warm.after["inductor"].values())
    assert warm.stages[0].requests[0].tokens == cold.stages[0].requests[0].tokens != []
    assert len(set(warm.stages[0].requests[0].tokens)) > 1
    assert [process.torch and process.observed for process in warm.processes] == [True] * 3
    assert any(path.endswith("/vllm/v1/worker/worker.py") for path in warm.modules)
    assert warm.exit_code == 0
    assert 0 < (warm.ready_s or 0) < warm.wall_s
    assert warm.remarks == []


def test_matrix_order_groups_and_own_prompts(make: Any, tmp_path: Path) -> None:
    """O-41: every prompt reaches the server, exact lengths, none from the prefix cache."""
    bench = make(requests=str(tmp_path / "requests"), step_s=0.01)
    model = str(bench.model)
    stages = [
        Stage("single", [[completion(model, n, 40, 4)] for n in (1, 2)]),
        Stage("batch", [[completion(model, n, 48, 6) for n in range(3, 9)]], keep_tokens=True),
    ]
    result = bench.run(bench.job(1, stages, **QUIET))
    assert [(stage.name, len(stage.requests)) for stage in result.stages] == [("single", 2), ("batch", 6)]
    flat = [request for stage in result.stages for request in stage.requests]
    assert all(r.counted and r.status == 200 and 0 < r.ttft_s <= r.total_s for r in flat)
    assert [r.tokens for r in result.stages[0].requests] == [[], []]
    assert len({tuple(r.tokens) for r in result.stages[1].requests}) == 6
    seen = requests_of(tmp_path / "requests")
    assert [len(r["prompt"]) for r in seen] == [4, 40, 40] + [48] * 6
    assert not any(r["cached"] for r in seen)


@pytest.mark.parametrize("script", [{"usage_off": -1}, {"usage_off": 1}, {"short": 1}])
def test_a_length_other_than_asked_does_not_count(make: Any, script: dict[str, Any]) -> None:
    """O-41. The ready request asks for no length here, so that only the stage is judged."""
    bench = make(**script)
    ready = dataclasses.replace(completion(str(bench.model), 0, 4, 2), output_tokens=0)
    result = bench.run(bench.job(1, ready=ready, **QUIET))
    request = result.stages[0].requests[0]
    assert result.status == "ok"
    assert (request.counted, request.status) == (False, 200)
    assert f"usage.completion_tokens: found {request.output_tokens}, expected 8" in request.why


def test_healthy_is_not_ready(make: Any) -> None:
    """O-38: /health and /v1/models answer 200, completions 503: no error, and no readiness."""
    bench = make(listen_early=True, unavailable_s=0.7)
    result = bench.run(bench.job(1, **QUIET))
    assert result.status == "ok"
    assert (result.ready_s or 0) > 0.7


def test_never_ready_says_the_last_answer(make: Any) -> None:
    bench = make(listen_early=True, unavailable_s=60)
    result = bench.run(bench.job(1, ready_s=1.0, **QUIET))
    assert (result.status, result.stage, result.ready_s) == ("not-ready", "start", None)
    assert "no completion within 1 s; last answer: HTTP 503" in result.error


def test_a_start_that_hangs_is_ended(make: Any) -> None:
    bench = make(hang=True)
    result = bench.run(bench.job(1, ready_s=0.8, grace_s=0.5, **QUIET))
    assert result.status == "not-ready"
    assert "last answer: ConnectionRefusedError" in result.error


def test_death_at_start_names_the_first_error(make: Any) -> None:
    """O-37 (a): the worker's error is the cause, the API server's only a symptom; found at once."""
    bench = make(die={"when": "start", "first": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"})
    result = bench.run(bench.job(1, **QUIET))
    assert (result.status, result.stage, result.exit_code) == ("died", "start", 1)
    assert result.error == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert result.wall_s < 5
    assert "Engine core initialization failed" in Path(bench.job(1).log).read_text()


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


def test_a_refused_request_ends_the_matrix(make: Any) -> None:
    bench = make(refuse={"status": 500, "length": 48})
    model = str(bench.model)
    stages = [Stage(f"s{length}", [[completion(model, length, length, 2)]]) for length in (32, 48, 64)]
    result = bench.run(bench.job(1, stages, **QUIET))
    assert (result.status, result.stage) == ("failed", "s48")
    assert "stage s48, request 1: HTTP 500" in result.error
    assert "scripted refusal" in result.error
    assert [stage.name for stage in result.stages] == ["s32", "s48"]


def test_a_cut_stream_is_a_failure(make: Any) -> None:
    bench = make(cut_after=3)
    result = bench.run(bench.job(1, **QUIET))
    assert (result.status, result.stage) == ("failed", "one")
    assert not result.stages[0].requests[0].counted
    assert result.stages[0].requests[0].status == 0


@pytest.mark.parametrize(("key", "status"), [("", "unauthorized"), ("k3y-of-the-server", "ok"), ("another-key", "unauthorized")])
def test_api_key(make: Any, key: str, status: str) -> None:
    """O-39: the key is sent; without it the run stops at once; it is in no file."""
    bench = make()
    job = bench.job(1, env=bench.env(1, VLLM_API_KEY="k3y-of-the-server"), mask=["VLLM_API_KEY"])
    environment = {"PATH": "/usr/bin:/bin", **({"BAKER_SERVER_KEY": key} if key else {})}
    if not key:  # a job file without the key, a server that has it from elsewhere
        job = dataclasses.replace(job, env={**job.env, "VLLM_API_KEY": ""}, argv=[*job.argv[:1], "-c", _KEYED, *job.argv[3:]])
    result = bench.run(job, env=environment)
    assert result.status == status
    assert result.wall_s < 5
    if status == "unauthorized":
        assert "HTTP 401" in result.error
        assert ("set VLLM_API_KEY" if not key else "refused the key") in result.error
    written = [Path(job.log), Path(job.out), *Path(job.record).iterdir()]
    assert not any(b"k3y-of-the-server" in path.read_bytes() for path in written)


_KEYED = "import os,sys; os.environ['VLLM_API_KEY']='k3y-of-'+'the-server'; from vllm.entrypoints.openai.api_server import main; main(sys.argv[1:])"


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


def test_secrets_of_the_server_never_reach_log_or_result(make: Any) -> None:
    """O-53: the server prints its environment and its command line; a failing request quotes it too."""
    bench = make(print_env=True, die={"when": "start", "first": "ValueError: token hf_TESTSECRETVALUE is bad"})
    arguments = ("--hf-token", "argument-SECRET-9")
    job = bench.job(1, arguments=arguments, env=bench.env(1, HF_TOKEN="hf_TESTSECRETVALUE"), mask=["HF_TOKEN", "ABSENT"])
    result = bench.run(job)
    assert result.error == "ValueError: token *** is bad"
    log = Path(job.log).read_text()
    assert "'HF_TOKEN': '***'" in log
    for path in [Path(job.log), Path(job.out), *Path(job.record).iterdir()]:
        text = path.read_text()
        assert "hf_TESTSECRETVALUE" not in text
        assert "argument-SECRET-9" not in text


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


def test_program_that_does_not_exist(make: Any, tmp_path: Path) -> None:
    bench = make()
    result = bench.run(bench.job(1, argv=[str(tmp_path / "nothing")], **QUIET))
    assert result.status == "died"
    assert f"cannot start {tmp_path}/nothing" in result.error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"argv": []}, "job.argv"),
        ({"port": 0}, "job.port: found 0, expected 1 to 65535"),
        ({"network": "bridge"}, "job.network"),
        ({"watch": [{"name": "bad", "kind": "note", "pattern": "("}]}, "job.watch bad"),
        ({"grace_s": 0}, "job.grace_s"),
        ({"out": "relative.json"}, "job.out"),
        ({"ready": 3}, "Request: found int"),
    ],
)
def test_unreadable_job_is_refused(make: Any, change: dict[str, Any], words: str) -> None:
    import subprocess
    import sys

    bench = make()
    path = bench.directory / "bad.job"
    path.write_text(json.dumps({**dataclasses.asdict(bench.job(1)), **change}))
    done = subprocess.run([sys.executable, "-I", "-S", str(bench.tools), "drive", str(path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr
    assert str(path) in done.stderr
