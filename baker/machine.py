"""What this machine must have before a build costs anything: the right GPU, idle, and a driver that serves the server's CUDA."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from baker import virtual as virtuals
from baker.caches.gpu import cuda_version
from baker.errors import MachineError
from baker.executors.base import Executor
from baker.spec import Interpreter, Target


def require_gpu(target: Target, executor: Executor, virtual: bool = False, marked: bool = False) -> Mapping[str, Any]:
    """Look for the GPU before anything costs. Raises MachineError; returns the facts and `virtual` as in baker.virtual ({} for a CPU target).

    `virtual`: the user asked for a stand-in. `marked`: one is fine too, for what was baked on one is never called proven there.
    """
    if not target.is_gpu:
        return {}
    names = ["gpu.count", "gpu.name", "gpu.cc", "gpu.error", "gpu.virtual", "gpu.processes", "cuda.library", "cuda.driver_api", "driver.version"]
    facts = executor.probe({"names": names, "python": sys.executable})
    if not facts.get("gpu.count"):
        raise MachineError(
            f"no GPU is visible, and --arch {target.arch} needs one",
            code="no-gpu",
            found=str(facts.get("gpu.error") or "0 devices"),
            expected=f"libcuda.so.1 and a GPU of {target.arch}",
            remedy="run baker on the GPU host: image build sandboxes (docker build, BuildKit) have no GPU; `baker plan` needs none",
        )
    found = "sm_" + str(facts.get("gpu.cc") or "").replace(".", "")
    if found != target.arch:
        raise MachineError(
            f"this machine's GPU is not {target.arch}",
            code="wrong-gpu",
            found=f"{facts.get('gpu.name')} ({found})",
            expected=target.arch,
            remedy=f"run baker on a {target.arch} machine, or pass --arch {found}",
        )
    if target.product and facts.get("gpu.name") != target.product:
        raise MachineError(
            "this machine's GPU is another product",
            code="wrong-gpu",
            found=str(facts.get("gpu.name")),
            expected=target.product,
            remedy="vLLM's artifacts are keyed by the product name: run baker on that product",
        )
    _require_idle(facts)
    return {**facts, "virtual": "" if marked else virtuals.mode(facts, virtual, os.environ)}


def require_driver(facts: Mapping[str, Any], interpreter: Interpreter) -> None:
    """Raise MachineError when the driver serves an older CUDA major version than the server's torch was built with (case O-19)."""
    need = cuda_version({f"pkg.{name}": version for name, version in interpreter.packages.items()}).partition(".")[0]
    here = str(facts.get("cuda.driver_api") or "")
    if need and here and int(here.partition(".")[0]) < int(need):
        raise MachineError(
            f"the driver serves CUDA {here}, and the server's torch needs CUDA {need}",
            code="driver-too-old",
            found=f"driver {facts.get('driver.version') or 'of unknown version'}, CUDA {here}",
            expected=f"CUDA {need}.0 or newer",
            remedy=f"install a newer driver, or pass --python with an environment built for CUDA {here.partition('.')[0]}",
        )


def _require_idle(facts: Mapping[str, Any]) -> None:
    """Raise MachineError when something else computes on a GPU: memory would be short, and what is chosen by time would be wrong."""
    counts = facts.get("gpu.processes")
    busy = [count for count in (counts if isinstance(counts, list) else [counts]) if count]
    if busy:
        raise MachineError(
            "another process uses the GPU",
            code="gpu-busy",
            found=f"{max(busy)} processes compute on it (NVML)",
            expected="an idle GPU: kernels are chosen by their time, and memory is measured",
            remedy="end it (nvidia-smi shows which), or pick an idle GPU with CUDA_VISIBLE_DEVICES",
        )
