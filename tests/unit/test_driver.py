"""The driver against the simulator: outcomes of whole runs, each with real processes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from baker.inside import proctree
from baker.inside.job import Stage
from tests.sim.drive import completion, requests_of

QUIET = {"record": ""}  # not recorded: a third of a second faster


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


def test_never_ready_says_the_last_answer(make: Any) -> None:
    bench = make(listen_early=True, unavailable_s=60)
    result = bench.run(bench.job(1, ready_s=1.0, **QUIET))
    assert (result.status, result.stage, result.ready_s) == ("not-ready", "start", None)
    assert "no completion within 1 s; last answer: HTTP 503" in result.error


def test_death_at_start_names_the_first_error(make: Any) -> None:
    """O-37 (a): the worker's error is the cause, the API server's only a symptom; found at once."""
    bench = make(die={"when": "start", "first": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"})
    result = bench.run(bench.job(1, **QUIET))
    assert (result.status, result.stage, result.exit_code) == ("died", "start", 1)
    assert result.error == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert result.wall_s < 5
    assert "Engine core initialization failed" in Path(bench.job(1).log).read_text()


def test_a_refused_request_ends_the_matrix(make: Any) -> None:
    bench = make(refuse={"status": 500, "length": 48})
    model = str(bench.model)
    stages = [Stage(f"s{length}", [[completion(model, length, length, 2)]]) for length in (32, 48, 64)]
    result = bench.run(bench.job(1, stages, **QUIET))
    assert (result.status, result.stage) == ("failed", "s48")
    assert "stage s48, request 1: HTTP 500" in result.error
    assert "scripted refusal" in result.error
    assert [stage.name for stage in result.stages] == ["s32", "s48"]


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
    bench = make()
    path = bench.directory / "bad.job"
    path.write_text(json.dumps({**dataclasses.asdict(bench.job(1)), **change}))
    done = subprocess.run([sys.executable, "-I", "-S", str(bench.tools), "drive", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert str(path) in done.stderr


@pytest.mark.parametrize("words", [[], ["drive"], ["drive", "a", "b"], ["prove", "x"]])
def test_usage(make: Any, words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", str(make().tools), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: tools.zip drive JOB.json | tools.zip probe")


def test_probe_answers(make: Any) -> None:
    request = json.dumps({"names": ["cpu.arch"]})
    done = subprocess.run([sys.executable, "-I", "-S", str(make().tools), "probe"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["cpu.arch"] == os.uname().machine


def test_a_child_between_fork_and_exec_is_no_torch_process(tmp_path: Path) -> None:
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(bytes(4096))
    mapped = f"f=open({str(library)!r},'rb'); m=mmap.mmap(f.fileno(),4096,mmap.MAP_PRIVATE,mmap.PROT_READ)"
    code = f"import mmap,os,sys,time; {mapped}; print(1,flush=True); {{}}"
    stays, goes = (subprocess.Popen([sys.executable, "-c", code.format(end)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) for end in (
        "time.sleep(30)",
        "sys.stdin.read(1); os.execv('/bin/sleep', ['sleep', '30'])",
    ))  # fmt: skip
    try:
        for process in (stays, goes):
            assert process.stdout is not None
            process.stdout.readline()
        before = proctree.command(stays.pid)
        assert proctree.still_torch(stays.pid, before)
        assert not proctree.still_torch(stays.pid, ["another"])
        limit = time.monotonic() + 10
        while proctree.command(goes.pid)[:1] != ["sleep"] and time.monotonic() < limit:
            time.sleep(0.01)
        assert not proctree.still_torch(goes.pid, before)
        assert not proctree.maps_torch(goes.pid)
    finally:
        for process in (stays, goes):
            process.kill()
            process.communicate()
