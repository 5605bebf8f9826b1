"""DeepGEMM's kernels (`DG_JIT_CACHE_DIR`): `cache/kernel.<name>.<hash>/{kernel.cu,kernel.cubin}`, compiled by nvcc or NVRTC.

Read in DeepGEMM 2.8.1 as vendored by vLLM 0.33, not run. The key holds compiler and version, flags with the absolute include path of the package,
and the code with its headers' hash. A directory that lacks one of its files is an assertion, not a miss. Unproven without a GPU: only made trees
have been packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import cubin, gpu
from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain, entries, lacking
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_PACKAGES = ("pkg.vllm", "pkg.deep-gemm")


class DeepGemm(Plain):
    """Kind `deep_gemm`."""

    name = "deep_gemm"
    title = "DeepGEMM: kernels compiled by nvcc or NVRTC (unproven)"
    stability = 20
    dropped = (("tmp/*", "unfinished build"),)
    inert: tuple[str, ...] = ("*.cu", "*.hpp", "*.ptx", "*.sass")
    depth = 2

    def pins(self, live: str) -> Mapping[str, str]:
        """`DG_JIT_CACHE_DIR`; vLLM sets it below its own root only when it is not set (utils/deep_gemm.py, 0.31 to 0.33)."""
        return {"DG_JIT_CACHE_DIR": f"{live}/{self.name}"}

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Capability, the package that holds the sources, and nvcc, which is asked for its version even on full hits."""
        rows = [*same(self.name, facts, _PACKAGES), *gpu.rows(self.name, facts)]
        nvcc = "install nvcc of the bake's CUDA: DeepGEMM asks it for its version on every start (DG_JIT_USE_NVRTC=1 avoids that)"
        rows.append(Row("tool.nvcc", "present", True, "hard", self.name, nvcc))
        rows.append(Row("tool.cuobjdump", "present", True, "soft", self.name, "install cuobjdump: some builds look up the kernel's symbol with it"))
        remedy = "set CUDA_HOME as at the bake: it says which nvcc is asked"
        rows.append(Row("env.CUDA_HOME", "eq", facts.get("env.CUDA_HOME"), "soft", self.name, remedy))
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Kernels and their architectures, as the cubins' headers say."""
        kernels = sorted(root.glob("cache/kernel.*/kernel.cubin"))
        return {"kernels": len(kernels), "architectures": sorted({f"sm_{sm}" for path in kernels if (sm := _capability(path))})}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Kernels without source or cubin, files that are no cubin, code for several architectures."""
        found = [*super().problems(root, paths), *lacking(self.name, "kernel-partial", paths, 2, ("kernel.cu", "kernel.cubin"))]
        empty = {finding.message.partition(" ")[0] for finding in found}
        cubins = [f"{entry}/kernel.cubin" for entry, names in entries(paths, 2).items() if "kernel.cubin" in names]
        for path in cubins:
            if path not in empty and not _capability(root / path):
                found.append(Finding("kernel-damaged", "hard", self.name, f"{path} is no cubin", "no CUDA device code", "ELF for CUDA", AGAIN))
        seen = sorted({sm for path in cubins if (sm := _capability(root / path))})
        if len(seen) > 1:
            text = "kernels for several architectures: another GPU's cache was mixed in"
            found.append(Finding("kernel-mixed", "hard", self.name, text, ", ".join(f"sm_{sm}" for sm in seen), "one", "bake from an empty root"))
        return found


def _capability(path: Path) -> int:
    """The SM number of a cubin; 0 when it is none."""
    try:
        return cubin.read_capability(path)
    except (cubin.NotCubinError, OSError):
        return 0
