"""Facts: only what is asked for, None and unknown kept apart, nothing of the server's imported, a driver that hangs does not hang us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from baker.inside import cpu, gpu, interpreter, probe

EPYC = "fpu sse sse4_1 pni ssse3 fma f16c avx avx2 avx512f avx512vl avx512bw avx512dq avx512_bf16 avx512_vnni gfni vaes smep bmi1"
REPOSITORY = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler for the stand-in driver")


def test_only_named_facts_and_unknown_come_back() -> None:
    facts = probe.observe(["cpu.arch", "cpu.count", "uid", "env.X", "no.such"], env={"X": "1"})
    assert facts.keys() == {"cpu.arch", "cpu.count", "uid", "env.X", "no.such", "unknown", "sources"}
    assert (facts["cpu.arch"], facts["uid"], facts["env.X"]) == (os.uname().machine, os.getuid(), "1")
    assert facts["cpu.count"] == len(os.sched_getaffinity(0))
    assert facts["unknown"].keys() == {"no.such"}


def test_an_unset_variable_is_known_to_be_absent() -> None:
    assert probe.observe(["env.NOPE"], env={}) == {"env.NOPE": None, "unknown": {}, "sources": {"env.NOPE": "environment"}}


def test_compilers_are_found_as_their_users_find_them(tmp_path: Path) -> None:
    for name in ("g++", "gcc", "clang", "mycxx"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = str(tmp_path)
    names = ["tool.cxx", "tool.cc"]
    found = probe.observe(names, env={"PATH": path})
    assert (found["tool.cxx"], found["tool.cc"], found["unknown"]) == (f"{path}/g++", f"{path}/gcc", {})
    chosen = probe.observe(names, env={"PATH": path, "CXX": "mycxx", "CC": f"{path}/clang"})
    assert (chosen["tool.cxx"], chosen["tool.cc"]) == (f"{path}/mycxx", f"{path}/clang")
    (tmp_path / "g++").chmod(0o644)
    assert probe.observe(["tool.cxx"], env={"PATH": path})["tool.cxx"] is None


def test_cpu_flags_that_do_not_change_code_are_left_out() -> None:
    assert cpu.isa({"flags": EPYC}) == sorted(set(EPYC.split()) - {"fpu", "sse", "smep"})
    assert cpu.isa({"features": "fp asimd crc32 sve i8mm"}) == ["asimd", "i8mm", "sve"]
    assert cpu.isa({}) is None


@pytest.mark.parametrize(
    ("flags", "machine", "wish", "level"),
    [
        (EPYC, "x86_64", "", "avx512_vnni"),
        (EPYC + " amx_tile amx_bf16 amx_int8 amx_fp16", "x86_64", "", "amx_tile+avx512_bf16+amx_fp16"),
        (EPYC.replace(" avx512_vnni", ""), "x86_64", "", "avx512+avx512_bf16"),
        (EPYC.replace("avx512dq ", ""), "x86_64", "", "avx2"),
        (EPYC, "x86_64", "avx2", "avx2"),
        (EPYC, "x86_64", "default", "none"),
        ("fpu avx2 fma f16c", "x86_64", "avx512", "avx2"),
        ("fpu sse4_1", "x86_64", "", "none"),
        ("asimd sve bf16", "aarch64", "", "sve"),
        ("asimd", "aarch64", "", "asimd"),
        ("", "x86_64", "", None),
    ],
)
def test_vector_level(flags: str, machine: str, wish: str, level: str | None) -> None:
    assert cpu.vector({"flags": flags}, machine, {"ATEN_CPU_CAPABILITY": wish}) == level


def test_only_the_first_processor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: One\nflags\t\t: avx2\n\nprocessor\t: 1\nmodel name\t: Two\n")
    assert cpu.read_cpuinfo(str(path)) == {"processor": "0", "model name": "One", "flags": "avx2"}


def write_distribution(directory: Path, name: str, version: str, *, metadata: bool = True) -> None:
    path = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    path.mkdir(parents=True)
    if metadata:
        (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: 99 in the description\n")


def test_versions_come_from_metadata_files(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write_distribution(a, "Flash_Infer.Python", "0.7.2")
    write_distribution(a, "torch", "2.13.0+cpu")
    write_distribution(b, "torch", "2.11.0")
    write_distribution(a, "twice", "1")
    write_distribution(b, "twice", "1")
    write_distribution(a, "broken", "1", metadata=False)
    (a / "torch").mkdir()
    (a / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    names = ["pkg.flash-infer-python", "pkg.torch", "pkg.twice", "pkg.broken", "pkg.none"]
    facts = probe.observe(names, dist_info=[str(a), str(b), str(tmp_path / "gone")])
    assert [facts[name] for name in names] == ["0.7.2", ["2.11.0", "2.13.0+cpu"], "1", None, None]
    assert facts["unknown"] == {}


def test_no_readable_directory_is_unknown_not_missing(tmp_path: Path) -> None:
    facts = probe.observe(["pkg.torch"], dist_info=[str(tmp_path / "gone")])
    assert facts["pkg.torch"] is None
    assert "gone" in facts["unknown"]["pkg.torch"]
    assert "none was recorded" in probe.observe(["pkg.torch"])["unknown"]["pkg.torch"]


def test_python_facts_are_those_of_the_interpreter_that_is_named() -> None:
    facts = probe.observe(["python.version", "python.abi", "python.magic", "python.executable"], python=sys.executable)
    import importlib.util
    import sysconfig

    assert facts["python.version"] == sys.version.split()[0]
    assert facts["python.abi"] == sysconfig.get_config_var("SOABI")
    assert facts["python.magic"] == importlib.util.MAGIC_NUMBER.hex()
    assert facts["python.executable"] == sys.executable


def test_an_interpreter_that_fails_is_unknown_with_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no such module >&2\nexit 7\n")
    script.chmod(0o755)
    facts = probe.observe(["python.version"], python=str(script))
    assert facts["python.version"] is None
    assert facts["unknown"]["python.version"] == f"{script}: exit 7: no such module"
    assert "No such file" in probe.observe(["python.version"], python=str(tmp_path / "gone"))["unknown"]["python.version"]


def test_site_lists_directories_with_distributions() -> None:
    site = interpreter.python_site(sys.executable)
    assert any(Path(directory).glob("msgspec-*") for directory in site["dist_info"])
    assert set(site["dist_info"]) <= set(site["path"])


def run_main(request: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from baker.inside import probe; sys.exit(probe.main())"
    return subprocess.run([sys.executable, "-c", code], input=request, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def test_main_answers_the_builder() -> None:
    names = ["python.path", "python.packages", "python.dist_info", "python.version", "pkg.msgspec"]
    done = run_main(json.dumps({"names": names, "python": sys.executable, "site": True}))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["unknown"] == {}
    assert facts["python.packages"]["msgspec"] == facts["pkg.msgspec"] != ""
    assert facts["python.path"] == facts["site"]["path"]
    assert facts["python.dist_info"] == facts["site"]["dist_info"]


@pytest.mark.parametrize(
    ("request_text", "words"),
    [("", "bad request"), ("[]", "found list, expected an object"), ('{"names": "x"}', "names: found str"), ('{"names": [1]}', "expected strings")],
)
def test_main_refuses_a_bad_request(request_text: str, words: str) -> None:
    done = run_main(request_text)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


# A driver of our own making: the names and signatures are those of the public headers, the answers are set by macros.
CUDA = """
#include <string.h>
#include <unistd.h>
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuInit(unsigned f) { BEFORE; return CODE; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, d == 1 ? SECOND : "NVIDIA H200", n); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 150000000000UL; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : -1; return 0; }
"""
NVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.95.05", n); return 0; }
"""
ASK = "import json; from baker.inside import gpu, probe; print(json.dumps(probe.observe(list(probe.GPU)))) "


def build(directory: Path, code: str = "0", before: str = "", second: str = '"NVIDIA H200"') -> Path:
    assert COMPILER
    directory.mkdir(exist_ok=True)
    flags = [f"-DCODE={code}", f"-DBEFORE={before}", f"-DSECOND={second}"]
    for name, source, options in (("libcuda.so.1", CUDA, flags), ("libnvidia-ml.so.1", NVML, [])):
        command = [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(directory / name), *options]
        subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return directory


def ask(libraries: Path, code: str = ASK) -> dict[str, Any]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, env=env, check=True, timeout=30)
    return dict(json.loads(done.stdout))


@needs_compiler
def test_gpu_facts_come_from_the_driver(tmp_path: Path) -> None:
    facts = ask(build(tmp_path / "lib"))
    assert facts == {
        "gpu.count": 2,
        "gpu.name": "NVIDIA H200",
        "gpu.cc": "9.0",
        "gpu.sm_count": 132,
        "gpu.memory": 150000000000,
        "gpu.error": None,
        "driver.version": "580.95.05",
        "cuda.driver_api": "13.0",
        "cuda.library": str(tmp_path / "lib" / "libcuda.so.1"),
        "gpu.virtual": False,
        "driver.module": None,  # no file of a kernel module here
        "cuda.library_version": None,  # the library's file is not named by a version
        "cuda.forward_compat": None,
        "gpu.mig": None,
        "gpu.processes": None,  # a library without those functions
        "unknown": dict.fromkeys(("driver.module", "cuda.library_version", "cuda.forward_compat", "gpu.processes"), "the driver does not tell"),
        "sources": {
            "driver.version": "NVML",
            "cuda.driver_api": "libcuda",
            "cuda.library": "/proc/self/maps",
            **dict.fromkeys(("gpu.count", "gpu.name", "gpu.cc", "gpu.sm_count", "gpu.memory", "gpu.error", "gpu.mig", "gpu.virtual"), "libcuda"),
        },
    }


@needs_compiler
def test_different_gpus_are_a_list(tmp_path: Path) -> None:
    assert ask(build(tmp_path / "lib", second='"NVIDIA L40S"'))["gpu.name"] == ["NVIDIA H200", "NVIDIA L40S"]


@needs_compiler
@pytest.mark.parametrize("code", ["803", "804"])
def test_compat_library_conflict_has_its_own_message(tmp_path: Path, code: str) -> None:
    """O-21: not "no GPU"."""
    facts = ask(build(tmp_path / "lib", code=code))
    assert "compat libcuda in the image conflicts with the host driver 580.95.05" in facts["gpu.error"]
    assert facts["driver.version"] == "580.95.05"
    assert facts["gpu.count"] == 0


@needs_compiler
def test_a_driver_that_hangs_or_dies_is_told_and_bounded(tmp_path: Path) -> None:
    short = "import json; from baker.inside import gpu; print(json.dumps(gpu.query(0.5)))"
    begin = time.monotonic()
    facts = ask(build(tmp_path / "hang", before="sleep(60)"), short)
    assert time.monotonic() - begin < 5
    assert "did not answer within 0.5 s" in facts["gpu.error"]
    assert "gpu.count" not in facts
    facts = ask(build(tmp_path / "dies", before="*(volatile int *)0 = 1"), short)
    assert facts == {"gpu.error": "the driver library ended the process that asked it"}


@pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="this machine may have a driver")
def test_no_library_is_no_gpu_within_a_moment() -> None:
    begin = time.monotonic()
    facts = probe.observe(["gpu.count", "gpu.error", "gpu.name", "driver.version"])
    assert time.monotonic() - begin < 1
    assert facts["gpu.count"] == 0
    assert facts["gpu.error"] == "libcuda.so.1 not found"
    assert facts["gpu.name"] is None
    assert facts["unknown"] == {"driver.version": "libcuda.so.1 not found"}, "no GPU is known, the driver's version is not"


def test_error_texts_name_the_way_out() -> None:
    assert "CUDA_VISIBLE_DEVICES" in gpu.explain(100, "")
    assert "stub" in gpu.explain(34, "")
    assert "error 999" in gpu.explain(999, "580.1")
