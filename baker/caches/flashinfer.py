"""FlashInfer's workspace (`FLASHINFER_WORKSPACE_BASE`): modules built by nvcc and ninja, and its store of autotuned tactics.

Checked with FlashInfer 0.7.2: `.cache/flashinfer/<version>/<archs>/cached_ops/<module>/{build.ninja,.ninja_log,.ninja_deps,*.o,<module>.so}`. ninja
runs at every load and decides by modification times and by the command text, which holds absolute paths and CUDA_HOME: so times are kept, the path is
constant, and CUDA_HOME is a row. With FLASHINFER_DISABLE_JIT=1 such a module is refused even when it is fresh (flashinfer/jit/core.py,
JitSpec.build_and_load), so that variable proves nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import KEEP, Keep, same
from baker.caches.ninjatree import module_problems
from baker.caches.plain import Plain, zero_bytes
from baker.inside.finding import Finding
from baker.inside.manifest import Pattern, Row
from baker.spec import Target

_TOP = ".cache/flashinfer"
_MODULE = re.compile(r"^\.cache/flashinfer/([^/]+)/([^/]+)/cached_ops/([^/]+)/(.+)$")
_INERT = (".cu", ".cuh", ".h", ".jinja", ".o", ".d", "build.ninja", ".ninja_log", ".ninja_deps")


class Flashinfer(Plain):
    """Kind `flashinfer`."""

    name = "flashinfer"
    title = "FlashInfer: modules built by nvcc, autotuned tactics"
    stability = 10
    path_bound = True
    mtimes = True  # ninja compares times
    mutable: tuple[Pattern, ...] = (
        Pattern(f"{_TOP}/*/*/flashinfer_jit.log", "FlashInfer's own log, written at every start"),
        Pattern(f"{_TOP}/*/*/cached_ops/tmp/*.lock", "one lock a module, taken on hits too"),
        Pattern(f"{_TOP}/autotune/*.lock", "lock of the store of tactics"),
        Pattern("*/cached_ops/*/.ninja_log", "ninja may compact its log"),
        Pattern("*/cached_ops/*/.ninja_deps", "ninja may compact its log"),
    )
    # FlashInfer resolves links and writes the result into build.ninja: with links into pristine every command differs and all is built again.
    copy: tuple[str, ...] = ("*",)

    def pins(self, live: str) -> Mapping[str, str]:
        """`FLASHINFER_WORKSPACE_BASE`; the workspace is `.cache/flashinfer` below it."""
        return {"FLASHINFER_WORKSPACE_BASE": f"{live}/{self.name}"}

    def keep(self, path: str, size: int) -> Keep:
        """Logs and locks stay out; cubins that were downloaded belong to a package and are not compiled here."""
        if path.endswith("flashinfer_jit.log") or path.endswith(".lock"):
            return Keep("drop", "log or lock, new at every start")
        if not path.startswith(_TOP + "/"):
            return Keep("drop", "not in FlashInfer's workspace")
        return KEEP

    def unit(self, path: str) -> str:
        """The module's directory: ninja builds what lacks one of its files."""
        match = _MODULE.match(path + "/")
        return path if match is None or match[3] == "tmp" else "/".join(path.split("/")[:6])

    def role(self, path: str) -> str:
        """Only the linked modules and the tactics are used on a hit."""
        return "inert" if path.endswith(_INERT) else "code"

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The module directory is named by version and capability; the command text by CUDA_HOME; the modules are for one processor and ABI."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.flashinfer-python"])
        rows += gpu.rows(self.name, facts)
        remedy = "CUDA_HOME is in the text of every build command: another value rebuilds all modules, which takes minutes"
        rows.append(Row("env.CUDA_HOME", "eq", facts.get("env.CUDA_HOME"), "hard", self.name, remedy))
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Names of the modules, with FlashInfer's version and architectures."""
        modules = sorted({f"{m[1]}/{m[2]}/{m[3]}" for path in root.glob(f"{_TOP}/*/*/cached_ops/*/*.so") if (m := _match(root, path))})
        return {"modules": modules}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Modules without their shared object or build file, and objects older than what they were made from: ninja would build them again."""
        found = zero_bytes(self.name, root, paths)
        modules: dict[str, list[str]] = {}
        for path in paths:
            if (match := _MODULE.match(path)) and match[3] != "tmp":
                modules.setdefault(path[: match.start(4) - 1], []).append(match[4])
        for directory, names in sorted(modules.items()):
            if not directory.endswith("_cute_dsl"):  # objects of the CuTe DSL: no ninja
                found += module_problems(self.name, root, directory, names, "flashinfer-partial")
        return found


def _match(root: Path, path: Path) -> re.Match[str] | None:
    return _MODULE.match(path.relative_to(root).as_posix())
