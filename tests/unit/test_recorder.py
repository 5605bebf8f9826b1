"""The recorder in real Python processes, as the first `sitecustomize` on PYTHONPATH."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from baker.inside.events import request_dump


def _kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["e"] for line in lines]


def test_start_heartbeat_and_end(run: Any) -> None:
    _, files = run("import os, torch, time; time.sleep(0.4)")
    (lines,) = files.values()
    assert _kinds(lines) == ["start", "torch", "end"]
    start = lines[0]
    assert start["pid"] in files
    assert start["ppid"] == os.getpid()
    assert start["executable"].endswith("bin/python")
    assert lines[-1]["torch"] is True
    assert abs(lines[-1]["t"] - time.monotonic()) < 20  # one clock for all processes


def test_without_the_variable_nothing_is_written(run: Any) -> None:
    out, files = run("import sys; print(sys.flags.isolated)", record=False)
    assert (out, files) == ("0\n", {})


def test_child_compilers_of_every_kind(run: Any) -> None:
    code = """
        import os, subprocess, sys
        subprocess.run(["true", "g++"])
        subprocess.run(["/bin/true"], executable="/bin/true")
        subprocess.run(["sh", "-c", "exit 0 # ninja"])
        os.system("true ptxas k.ptx")
        os.posix_spawn("/bin/true", ["clang", "a.c"], {})
        if os.fork() == 0:
            os.execv("/bin/true", ["ld", "a.o"])
        os.wait()
        try:
            subprocess.run(["nvcc-does-not-exist", b"a.cu"])
        except FileNotFoundError:
            pass
    """
    _, files = run(code)
    children = [(line["how"], line["argv"]) for lines in files.values() for line in lines if line["e"] == "child"]
    assert sorted(children, key=str) == sorted(
        [
            ("subprocess.Popen", ["true", "g++"]),
            ("subprocess.Popen", ["sh", "-c", "exit 0 # ninja"]),
            ("os.system", "true ptxas k.ptx"),
            ("os.posix_spawn", ["clang", "a.c"]),
            ("os.exec", ["ld", "a.o"]),
            ("subprocess.Popen", ["nvcc-does-not-exist", "a.cu"]),
        ],
        key=str,
    )


def test_dump_lists_sources_without_touching_lazy_modules(run: Any) -> None:
    code = """
        import sys, time, types
        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                raise SystemExit("touched")
            __file__ = property(lambda self: sys.exit("touched"))
        sys.modules["lazy"] = Lazy("lazy")
        sys.modules["odd"] = 7
        import transformers
        time.sleep(0.6)
        print("alive")
    """
    wanted = request_dump(str(run.directory))
    out, files = run(code)
    (lines,) = files.values()
    dumps = [line for line in lines if line["e"] == "dump"]
    assert out == "alive\n"
    assert [dump["request"] for dump in dumps] == [wanted]
    assert any(path.endswith("site-packages/transformers/__init__.py") for path in dumps[0]["modules"])
    assert all(path.endswith(".py") for path in dumps[0]["modules"])


def test_shadowed_sitecustomize_runs_under_its_name(run: Any, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import sys\nprint(__name__, sys.modules[__name__].__file__)\n")
    for record in (True, False):
        out, _ = run("import sitecustomize; print(sitecustomize.__name__)", path=str(tmp_path / "theirs"), record=record)
        assert out == f"sitecustomize {tmp_path}/theirs/sitecustomize.py\nsitecustomize\n"


def test_an_error_of_theirs_is_reported_as_without_us(run: Any, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    out, files = run("print('goes on')", path=str(tmp_path / "theirs"))
    assert "RuntimeError: theirs" in out
    assert "goes on" in out
    assert [_kinds(lines) for lines in files.values()] == [["start", "end"]]


def test_no_place_to_write_does_not_break_the_server(run: Any) -> None:
    run.directory.rmdir()
    out, files = run("import torch, subprocess; subprocess.run(['true', 'g++']); print('fine')")
    assert (out, files) == ("fine\n", {})


def test_own_exception_becomes_a_line(run: Any) -> None:
    code = """
        import sys, types, time
        module = types.ModuleType("torch._dynamo.utils")
        module.counters = 3
        sys.modules[module.__name__] = module
        time.sleep(0.4)
        print("fine")
    """
    out, files = run(code)
    (lines,) = files.values()
    assert out == "fine\n"
    errors = [line["error"] for line in lines if line["e"] == "recorder-error"]
    assert errors
    assert errors[0].startswith("AttributeError")


def test_secrets_on_the_command_line_are_not_recorded(run: Any) -> None:
    code = """
        import os, subprocess, sys
        os.environ["MY_TOKEN"] = "s3" + "cret-3-long"
        one, two, three = ("s3" + "cret-1", "s3" + "cret-2", os.environ["MY_TOKEN"])
        subprocess.run([sys.executable, "-c", "pass", "--api-key", one, "--hf-token=" + two, "--port", "80"])
        os.system("true g++ -DX=" + three)
    """
    run(code)
    text = "".join(path.read_text() for path in run.directory.glob("*.jsonl"))
    assert "s3cret" not in text
    assert '"true g++ -DX=***"' in text
    assert '"--api-key", "***", "--hf-token=***", "--port", "80"' in text


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_isolated_processes_are_unobserved(run: Any, flag: str) -> None:
    assert run("pass", flag)[1] == {}
