from __future__ import annotations

import importlib.util
import io
import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

from baker import inside
from baker.pack import zips


def _names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_start_zip_is_deterministic_and_holds_no_tools() -> None:
    data = zips.start_zip()
    assert data == zips.start_zip()
    names = _names(data)
    assert names == sorted(names)
    assert {"__main__.py", "baker/__init__.py", "baker/inside/__init__.py", "baker/inside/manifest.py"} <= set(names)
    assert not {f"baker/inside/{tool}.py" for tool in zips.TOOLS_ONLY} & set(names)


def test_every_entry_has_the_fixed_date_and_mode() -> None:
    for info in zipfile.ZipFile(io.BytesIO(zips.start_zip())).infolist():
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert info.external_attr >> 16 == 0o100444
        assert info.compress_type == zipfile.ZIP_STORED


def test_no_start_module_needs_a_tool_module() -> None:
    """The image lacks them: an import would end `start` there and only there."""
    package = zips._package()
    for name in zips.start_modules():
        text = (package / f"{name}.py").read_text()
        for tool in zips.TOOLS_ONLY:
            assert f"baker.inside.{tool} " not in text, f"{name} imports {tool}"
            assert f"from baker.inside import {tool}" not in text, f"{name} imports {tool}"


def test_tools_zip_carries_the_recorder_as_sitecustomize() -> None:
    archive = zipfile.ZipFile(io.BytesIO(zips.tools_zip()))
    assert archive.read("sitecustomize.py") == archive.read("baker/inside/recorder.py")
    assert {f"baker/inside/{name}.py" for name in zips.modules()} <= set(archive.namelist())
    assert inside.__name__ in sys.modules


def test_start_zip_runs_isolated(tmp_path: Path) -> None:
    """Under -I -S nothing but the zip and the standard library is on sys.path."""
    (tmp_path / "start").write_bytes(zips.start_zip())
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "start"], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 102, done.stderr
    assert "Traceback" not in done.stderr


def test_tools_zip_runs_isolated(tmp_path: Path) -> None:
    (tmp_path / "tools.zip").write_bytes(zips.tools_zip())
    request = '{"names": ["cpu.arch"], "python": "%s"}' % sys.executable  # noqa: UP031 - JSON has braces
    done = subprocess.run([sys.executable, "-I", "-S", tmp_path / "tools.zip", "probe"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cpu.arch"] == platform.machine()


def test_byte_code_ships_only_for_the_interpreter_that_reads_it(tmp_path: Path) -> None:
    magic = importlib.util.MAGIC_NUMBER.hex()
    with_code, without = zips.start_zip(magic), zips.start_zip("00000000")
    assert without == zips.start_zip()
    names = zipfile.ZipFile(io.BytesIO(with_code)).namelist()
    assert {f"{name}c" for name in names if name.endswith(".py")} == {name for name in names if name.endswith(".pyc")}
    archive = tmp_path / "start"
    archive.write_bytes(with_code)
    done = subprocess.run([sys.executable, "-I", "-S", str(archive), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("baker")
    # Another process, with another hash seed, builds the very same bytes.
    code = "import sys; from baker.pack.zips import start_zip; sys.stdout.buffer.write(start_zip(sys.argv[1]))"
    again = subprocess.run(
        [sys.executable, "-c", code, magic],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(zips.__file__).parents[2])},
    )
    assert again.stdout == with_code
