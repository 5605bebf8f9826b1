"""Requirement rows that cache kinds for GPUs share: capability, CUDA against driver, driver, product.

Triton and FlashInfer depend on the compute capability, Inductor and vLLM's artifacts on the product's name, the driver's own cache on the driver.
Cubins run on every driver of their CUDA major version and newer ones (minor version compatibility, CUDA programming guide, "CUDA Compatibility");
below it the runtime does not even initialise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from baker.caches.base import same
from baker.inside.manifest import Row

_RUNTIMES = ("pkg.nvidia-cuda-runtime", "pkg.nvidia-cuda-runtime-cu13", "pkg.nvidia-cuda-runtime-cu12")


def cuda_version(facts: Mapping[str, Any]) -> str:
    """`13.0`: the CUDA runtime that torch was built with, from its wheel's own dependency or its local version (`+cu130`); "" when neither tells."""
    for name in _RUNTIMES:
        if match := re.match(r"(\d+)\.(\d+)", str(facts.get(name) or "")):
            return f"{match.group(1)}.{match.group(2)}"
    if match := re.search(r"\+cu(\d+)(\d)\b", str(facts.get("pkg.torch") or "")):
        return f"{match.group(1)}.{match.group(2)}"
    return ""


def world_rows(owner: str, world: int) -> list[Row]:
    """A server of several ranks on one node needs a GPU for each (case O-07): with fewer it dies, whatever is cached."""
    if world < 2:
        return []
    return [Row("gpu.count", "ge", world, "hard", owner, f"the server was baked with {world} ranks: give the container {world} GPUs")]


def rows(owner: str, facts: Mapping[str, Any], *, product: str = "soft", driver: str = "soft", toolkit: int = 0) -> list[Row]:
    """Rows of every GPU kind. `product` and `driver` are the severities of the product's name and of the kernel driver's version.

    `toolkit`: CUDA major version of the newest cubin, where the cache itself tells; it counts when the runtime's is older or unknown.
    """
    found = same(owner, facts, ["gpu.cc"], remedy="cubins of one compute capability do not run on another: bake for this GPU too")
    found += same(owner, facts, ["gpu.name"], severity=product, remedy="bake on this product: its name is in the key of vLLM and Inductor")
    found += same(
        owner, facts, ["driver.version"], severity=driver, remedy="cubins stay valid on newer drivers; entries of the driver's own cache do not"
    )
    major = max(toolkit, int(cuda_version(facts).partition(".")[0] or 0))
    if major:
        need = f"{major}.0"
        remedy = f"install a driver that serves CUDA {need} or newer, or use an image built for the CUDA of this driver"
        found.append(Row("cuda.driver_api", "ge", need, "hard", owner, remedy))
    return found
