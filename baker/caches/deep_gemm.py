"""DeepGEMM's kernels (`DG_JIT_CACHE_DIR`): `cache/<kernel>.<hash>/{kernel.cu,kernel.cubin,meta.json,.committed}`, compiled by nvcc or NVRTC.

Checked on the virtual GPU (tests/vgpu) with DeepGEMM as vendored by vLLM 0.33 and nvcc 13.0: 80 kernels of a block-FP8 model are found again.
`.committed` is an empty mark of a whole entry, `meta.json` tells command, compiler and options. The source holds the number of SMs as a constant,
so another product of one capability may look for other kernels. The key holds the compiler's version and the absolute include path of the
package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import cubin, gpu
from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain, entries, lacking, regular, zero_bytes
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_LIMIT = 1 << 20  # bytes of a metadata file; real ones have two thousand
_PACKAGES = ("pkg.vllm", "pkg.deep-gemm")


class DeepGemm(Plain):
    """Kind `deep_gemm`."""

    name = "deep_gemm"
    title = "DeepGEMM: kernels compiled by nvcc or NVRTC"
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
        rows += same(self.name, facts, ["gpu.sm_count"], remedy="the number of SMs is a constant in every kernel: bake on a GPU with as many")
        nvcc = "install nvcc of the bake's CUDA: DeepGEMM asks it for its version on every start (DG_JIT_USE_NVRTC=1 avoids that)"
        rows.append(Row("tool.nvcc", "present", True, "hard", self.name, nvcc))
        if facts.get("tool.cuobjdump"):  # a build that found its symbols without it does not need it
            text = "install cuobjdump: some builds look up the kernel's symbol with it"
            rows.append(Row("tool.cuobjdump", "present", True, "soft", self.name, text))
        remedy = "set CUDA_HOME as at the bake: it says which nvcc is asked"
        rows.append(Row("env.CUDA_HOME", "eq", facts.get("env.CUDA_HOME"), "soft", self.name, remedy))
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Kernels, their architectures as the cubins' headers say, and the compilers that the metadata names."""
        kernels = regular(root, "cache/*/kernel.cubin")
        compilers = {release for path in kernels if (release := _compiler(path.with_name("meta.json")))}
        architectures = sorted({f"sm_{sm}" for path in kernels if (sm := _capability(path))})
        return {"kernels": len(kernels), "architectures": architectures, "compilers": sorted(compilers)}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Kernels without source, cubin or mark, files that are no cubin, code for several architectures."""
        members = ["kernel.cu", "kernel.cubin"]
        if any(path.endswith("/.committed") for path in paths):  # DeepGEMM 2.8 leaves it, older ones do not
            members += ["meta.json", ".committed"]
        found = [*zero_bytes(self.name, root, paths, ("*/.committed",)), *lacking(self.name, "kernel-partial", paths, 2, members)]
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


def _compiler(path: Path) -> str:
    """`13.0.88` of the compiler's own version text in an entry's metadata; "" when it does not tell."""
    try:
        if not path.is_file() or path.stat().st_size > _LIMIT:
            return ""
        document = json.loads(path.read_text(encoding="utf-8"))
        text = document["compiler_info"]["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    match = re.search(r"V(\d+\.\d+\.\d+)", text) if isinstance(text, str) else None
    return match.group(1) if match else ""
