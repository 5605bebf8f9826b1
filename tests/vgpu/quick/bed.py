"""The quick bed: compile the stand-ins, run Triton or baker's probe on them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]


def build(out: Path, version: str = "") -> Path:
    """Both libraries into `out`; takes a second. With `version`, libcuda.so.1 is a link to a file named so, as drivers install it.

    Raises CalledProcessError.
    """
    out.mkdir(parents=True, exist_ok=True)
    for source, name in (("libcuda.c", "libcuda.so.1"), ("nvml.c", "libnvidia-ml.so.1")):
        compiler = os.environ.get("CC", "gcc")
        subprocess.run([compiler, "-shared", "-fPIC", "-w", str(HERE / source), f"-Wl,-soname,{name}", "-o", str(out / name)], check=True)
    if version:
        (out / "libcuda.so.1").rename(out / f"libcuda.so.{version}")
        (out / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    return out


def triton(python: str, libraries: Path, cache: Path, **env: str) -> dict[str, Any]:
    """What kernels.py prints: {"version", "hits", "keys"}. Raises AssertionError with Triton's error."""
    complete = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(libraries),
        "TRITON_LIBCUDA_PATH": str(libraries),
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONPATH": str(HERE / "stub"),
        "HOME": str(cache.parent),
        **env,
    }
    done = subprocess.run([python, str(HERE / "kernels.py")], env=complete, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def probe(python: str, libraries: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """baker's GPU facts on the stand-in."""
    code = "import json; from baker.inside import gpu; print(json.dumps(gpu.query()))"
    complete = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(libraries), **env}
    done = subprocess.run([python, "-c", code], env=complete, capture_output=True, text=True, timeout=30, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
