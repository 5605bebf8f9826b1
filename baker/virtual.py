"""Bakes without the GPU: when they are allowed, what is left out of them, and how they are marked (ADR 0012).

A stand-in for the CUDA driver (tests/vgpu) tells itself apart by the fact `gpu.virtual`. On it everything that compiles compiles for real, but no
kernel runs: times are arbitrary, and so is every choice that is made by time. Two ways lead there: `--virtual` (a user who has no such GPU; records
of choices by time are left out) and BAKER_VIRTUAL_GPU=1 (the project's own suite, which wants the whole tree). Neither is ever called proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from baker.errors import MachineError, UsageError

SWITCH = "BAKER_VIRTUAL_GPU"
CROSS, SUITE = "cross", "suite"  # the value of the plan's `virtual`: by --virtual, or by the suite's switch

# Records of choices by time: paths in the kinds' trees, with the owner's name for them. Without them the first start on a real GPU tunes once.
CHOSEN_BY_TIME: Mapping[str, str] = {
    "vllm/*.best_config": "Inductor: the fastest of a kernel's configurations",
    "inductor/*.best_config": "Inductor: the fastest of a kernel's configurations",
    "vllm/*/inductor_cache/cache/*": "Inductor: times of candidate kernels",
    "inductor/cache/*": "Inductor: times of candidate kernels",
    "triton/*.autotune.json": "Triton: the fastest of a kernel's configurations",
    "vllm/flashinfer_autotune_cache/*": "FlashInfer: the fastest tactic",
    "flashinfer/.cache/flashinfer/autotune/*": "FlashInfer: the fastest tactic",
}


def mode(facts: Mapping[str, Any], wanted: bool, environ: Mapping[str, str]) -> str:
    """`cross`, `suite`, or "" on a real GPU. Raises MachineError on a stand-in that nobody asked for, UsageError for --virtual beside a real GPU."""
    if not facts.get("gpu.virtual"):
        if wanted:
            raise UsageError(
                "--virtual is for machines without the GPU, and this one has it",
                code="conflict",
                found=str(facts.get("gpu.name")),
                expected="the stand-in driver of tests/vgpu",
                remedy="drop --virtual: a bake on the real GPU can be proven",
            )
        return ""
    if wanted:
        return CROSS
    if environ.get(SWITCH) == "1":
        return SUITE
    raise MachineError(
        "the CUDA driver of this machine is a stand-in: no kernel would run",
        code="virtual-gpu",
        found=f"{facts.get('gpu.name')}, virtual ({facts.get('cuda.library')})",
        expected="a real GPU",
        remedy="take the stand-in out of LD_LIBRARY_PATH, or pass --virtual to bake without the GPU (experimental: never proven)",
    )


def left_out(virtual: str, path: str) -> str:
    """Why `<kind>/<path>` does not ship in a bake of that mode; "" when it does."""
    if virtual != CROSS:
        return ""
    return next((reason for pattern, reason in CHOSEN_BY_TIME.items() if fnmatchcase(path, pattern)), "")


def mark(virtual: str, world: int) -> dict[str, Any]:
    """The manifest's `virtual` of a set: what a real GPU must still confirm; {} for a real bake. `world`: ranks of one replica."""
    if not virtual:
        return {}
    confirm = ["tokens", "times", "choices by time (autotuning): every candidate took equally long"]
    if world > 1:
        confirm.append("the graph: with several ranks it depends on peer access and multicast, which a stand-in does not have")
    left = sorted(CHOSEN_BY_TIME) if virtual == CROSS else []
    return {"mode": virtual, "untuned": True, "graph_may_differ": world > 1, "left_out": left, "confirm": confirm}
