"""What shared objects need is read from their headers: real ones made by the C compiler, foreign ones, and bytes that are none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baker.caches import objects
from baker.inside import libraries
from baker.inside.probe import observe
from baker.inside.rows import judge

HERE = {"cpu.arch": os.uname().machine, "python.abi": sysconfig.get_config_var("SOABI")}
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an object that links libm, libpthread and, if the system has it, libgomp."""
    root = tmp_path_factory.mktemp("objects")
    source = '#include <math.h>\n#include <stdio.h>\ndouble f(double x) { printf("%f", x); return pow(x, x); }\n'
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(root / "a.so"), "-Wl,--no-as-needed", "-lm", "-lgcc_s"],
        input=source,
        text=True,
        check=True,
    )
    return root


@needs_compiler
def test_the_needs_of_a_real_object(real: Path) -> None:
    found = objects.examine("inductor", real, ["a.so"], HERE)
    assert found.findings == ()
    assert found.needed == {"libgcc_s.so.1"}  # libc and libm are covered by glibc's version
    assert set(found.newest) == {"GLIBC"}
    system = observe(found.facts(), env={})
    rows = {row.fact: row for row in found.rows("inductor", system)}
    assert set(rows) == {"libc.version", "lib.libgcc_s.so.1"}
    assert all(judge(row, "inductor", {**system, **observe(["libc.version"])}) is None for row in rows.values())


@needs_compiler
def test_a_system_without_the_library_or_with_an_older_one_is_named(real: Path) -> None:
    found = objects.examine("inductor", real, ["a.so"], HERE)
    rows = found.rows("inductor", observe(found.facts(), env={}))
    there = {"libc.version": "2.0", "lib.libgcc_s.so.1": None, "unknown": {}}
    findings = {finding.message.split()[0]: finding for row in rows if (finding := judge(row, "inductor", there))}
    assert findings["libc.version"].severity == findings["lib.libgcc_s.so.1"].severity == "hard"
    assert "libgcc_s.so.1" in findings["lib.libgcc_s.so.1"].remedy


def test_a_library_that_no_system_directory_has_comes_with_a_package() -> None:
    found = objects.Objects((), frozenset({"libtorch_cpu.so"}), {"GLIBC": "2.14"})
    assert [row.fact for row in found.rows("inductor", {"lib.libtorch_cpu.so": None})] == ["libc.version"]


def test_an_object_for_another_python_is_named(tmp_path: Path) -> None:  # case O-15
    name = "ABC/cuda_utils.cpython-310-x86_64-linux-gnu.so"
    (tmp_path / "ABC").mkdir()
    (tmp_path / name).write_bytes(b"\x7fELF")
    (finding,) = objects.examine("triton", tmp_path, [name], {**HERE, "python.abi": "cpython-312-x86_64-linux-gnu"}).findings
    assert (finding.code, finding.found, finding.expected) == ("object-abi", "cpython-310-x86_64-linux-gnu", "cpython-312-x86_64-linux-gnu")
    assert finding.message.startswith(name)


@needs_compiler
def test_an_object_for_another_processor_is_named(real: Path, tmp_path: Path) -> None:  # a GH200 host is aarch64
    data = bytearray((real / "a.so").read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    (tmp_path / "b.so").write_bytes(bytes(data))
    (finding,) = objects.examine("inductor", tmp_path, ["b.so"], {**HERE, "cpu.arch": "x86_64"}).findings
    assert (finding.code, finding.found) == ("object-machine", "aarch64")


@needs_compiler
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(at=st.integers(0, 20_000), value=st.integers(0, 255), cut=st.integers(0, 20_000))
def test_no_damage_makes_the_reader_crash(at: int, value: int, cut: int, real: Path, tmp_path: Path) -> None:
    data = bytearray((real / "a.so").read_bytes())
    data[at % len(data)] = value
    (tmp_path / "c.so").write_bytes(bytes(data[: max(1, cut % len(data))] if cut % 2 else data))
    found = objects.examine("inductor", tmp_path, ["c.so"], HERE)
    assert all(finding.code in ("object-damaged", "object-machine") for finding in found.findings)


def test_libraries_are_found_without_loading_them(tmp_path: Path) -> None:
    (tmp_path / "libdemo.so.1").write_bytes(b"..GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0GLIBCXX_3.4\0GLIBCXX_FORCE\0")
    path = libraries.find("libdemo.so.1", {"LD_LIBRARY_PATH": f"relative:{tmp_path}"})
    assert path == str(tmp_path / "libdemo.so.1")
    assert libraries.newest(path, "GLIBCXX") == "3.4.30"
    assert libraries.newest(None, "GLIBCXX") is None
    assert libraries.newest(str(tmp_path / "absent"), "GLIBCXX") is None
    (tmp_path / "cache").write_bytes(b"table\0libelse.so.2\0" + os.fsencode(str(tmp_path / "libelse.so.2")) + b"\0")
    assert libraries.find("libelse.so.2", {}, str(tmp_path / "cache")) is None
    (tmp_path / "libelse.so.2").write_bytes(b"")
    assert libraries.find("libelse.so.2", {}, str(tmp_path / "cache")) == str(tmp_path / "libelse.so.2")
    assert libraries.find("../../etc/passwd", {}) is None
    assert libraries.find("libno\0.so", {}) is None
