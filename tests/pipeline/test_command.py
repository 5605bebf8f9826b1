"""Runtime `command`: any program, warmed until a run adds no file, proven by runs of the finished image."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from baker.pack.unpack import unpack
from baker.runtimes import ALL
from baker.runtimes.base import Runtime
from baker.spec import Interpreter, Target
from baker.steps.images import open_image
from tests.pipeline.bakes import Done, run

# Stands for a program that compiles: the first run calls the compiler and leaves an index of Numba, later ones find it.
PROGRAM = """\
import os, pickle, subprocess, sys, tempfile
from pathlib import Path

index = Path(os.environ["NUMBA_CACHE_DIR"]) / "warm_0" / "f-1.py311.nbi"
if not index.exists():
    index.parent.mkdir(parents=True)
    source = Path(tempfile.mkdtemp()) / "a.cpp"
    source.write_text("int f;")
    subprocess.run([str(Path(sys.executable).parent / "g++"), str(source), "-o", str(source.with_suffix(".so"))], check=True)
    index.write_bytes(pickle.dumps("0.65.0"))
    (index.parent / "f-1.py311.1.nbc").write_bytes(b"code")
    import shutil
    shutil.rmtree(source.parent)
print("answer", len(sys.argv))
"""
GROWS = PROGRAM + "\nimport time\n(index.parent / f'g-{time.monotonic_ns()}.py311.nbi').write_bytes(pickle.dumps('0.65.0'))\n"
FAILS = "raise SystemExit('the weights are not there')\n"
NOTHING = "print('done')\n"

Bake = Callable[..., Done]


@pytest.fixture
def bake(tmp_path: Path, python: str) -> Bake:
    def build(text: str, *words: str, name: str = "warm.py") -> Done:
        program = tmp_path / name
        program.write_text(text)
        places = ["--root", str(tmp_path / "root"), "--work", str(tmp_path / "work" / name), "--output", f"oci:{tmp_path / 'image'}"]
        return run("build", "--json", "--arch", "cpu", "--runtime", "command", "--python", python, *places, "--", "python", str(program), *words)

    return build


def test_a_program_is_warmed_and_proven(bake: Bake, python: str, tmp_path: Path) -> None:
    done = bake(PROGRAM, "--size", "3")
    assert done.code == 0, done.text
    document = done.document
    assert (document["verdict"], document["strategy"]) == ("proven", "command")
    assert [start["files"]["new"] for start in document["proof"]["starts"]] == [[], [], [], []]
    assert document["proof"]["cold"]["events"] >= 1
    assert "results-not-compared" in {finding["code"] for finding in document["proof"]["findings"]}
    opened = open_image(Oci(), Oci().read(document["reference"]))
    serve = opened.manifest.sets[0].serve
    assert (serve["program"], serve["argv"], serve["once"]) == ([python, str(tmp_path / "warm.py")], ["--size", "3"], True)
    config = opened.image.config["config"]
    assert config["Entrypoint"] == [python, "-I", "-S", f"{opened.manifest.root}/start", "--", python, str(tmp_path / "warm.py")]
    assert config["Cmd"] == ["--size", "3"]


def test_the_image_runs_the_program_through_start_and_proves_again(bake: Bake, tmp_path: Path) -> None:
    reference = bake(PROGRAM).document["reference"]
    opened = open_image(Oci(), Oci().read(reference))
    unpack(opened.layer_paths, opened.manifest.root)
    env = {**opened.env, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "BAKER_STATUS": str(tmp_path / "status.json")}
    words = opened.image.config["config"]["Entrypoint"]
    done = subprocess.run([*words, "one"], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "answer 2\n"
    assert json.loads((tmp_path / "status.json").read_text())["baker"] == "compatible"  # another argument is said, and changes no kernel
    assert run("prove", reference).code == 0
    (tmp_path / "warm.py").write_text(PROGRAM + "\n")
    changed = run("prove", "--json", reference)
    assert (changed.code, changed.error["code"]) == (2, "program-differs"), changed.text


def test_another_program_is_another_plan(bake: Bake) -> None:
    assert bake(PROGRAM, name="a.py").document["plan"] != bake(PROGRAM + "\n", name="a.py").document["plan"]


@pytest.mark.parametrize(
    ("text", "code", "error", "names"),
    [
        (FAILS, 4, "server-died", "the weights are not there"),
        (GROWS, 5, "no-strategy", "no fixpoint"),
        (NOTHING, 5, "nothing-cached", "every kind"),
    ],
)
def test_a_program_that_will_not_do(text: str, code: int, error: str, names: str, bake: Bake) -> None:
    done = bake(text)
    assert (done.code, done.error["code"]) == (code, error), done.text
    assert names in json.dumps(done.error)


@pytest.mark.parametrize("words", [(), ("no-such-program",)])
def test_a_command_that_is_none(words: tuple[str, ...], python: str, tmp_path: Path) -> None:
    done = run("build", "--json", "--arch", "cpu", "--runtime", "command", "--python", python, "--root", str(tmp_path / "r"), "--", *words)
    assert (done.code, done.error["code"]) == (2, "no-command"), done.text


def test_a_server_needs_a_model(python: str) -> None:
    done = run("build", "--json", "--arch", "cpu", "--python", python)
    assert (done.code, done.error["code"]) == (2, "usage"), done.text


@pytest.mark.parametrize("runtime", ALL, ids=lambda runtime: runtime.name)
@pytest.mark.parametrize("target", [Target("cpu"), Target("sm_90", "NVIDIA H200")], ids=str)
def test_the_contract_of_every_runtime(runtime: Runtime, target: Target) -> None:
    interpreter = Interpreter("/env/bin/python", "3.11.7", "cpython-311-x86_64-linux-gnu", (), {"vllm": "0.33.0", "torch": "2.14.0"}, ())
    kinds = runtime.kinds(target)
    assert kinds
    assert len(set(kinds)) == len(kinds)
    version = runtime.version(interpreter)
    for strategy in runtime.strategies(target, version):
        assert strategy.name
        assert set(strategy.fills) <= set(kinds)
        assert set(runtime.neutral(version, target, strategy.name)) == {"transport", "arguments", "variables", "watched", "kinds"}
    program, arguments = runtime.command(interpreter, ("python", "/x.py", "--size", "1"))
    assert program
    assert isinstance(arguments, tuple)
    assert all(part.startswith("-") or part for part in runtime.listen(8000))
    assert all(not pattern.pattern.pattern.endswith((".so", ".pyc", ".cubin")) for pattern in runtime.transient(version))
