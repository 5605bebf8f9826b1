"""Triton's file cache (`TRITON_CACHE_DIR`): one directory a key, with the kernel's IR, cubin and metadata, and modules built by the C compiler.

Checked with Triton 3.8.0 and 3.9.0. Entries hold the absolute paths of their files (`__grp__NAME.json`), so the directory is the same at bake and
at serve time; a path that is missing is a silent miss. Nothing in Triton checks content: a cubin with one flipped byte is a hit. The module
`cuda_utils` needs a C compiler when it misses, and its key holds the directory of libcuda.so.1, which is pinned to a constant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from baker.caches import gpu, triton_entry
from baker.caches.base import KEEP, Keep, same
from baker.caches.plain import Plain, printable, zero_bytes
from baker.caches.triton_data import KEY_VARIABLES, OTHER_VARIABLES
from baker.inside import libcuda
from baker.inside.finding import Finding
from baker.inside.manifest import Row
from baker.spec import Target

_KEY = re.compile(r"[A-Z2-7]{52}")  # base32 of a sha256 without padding


class Triton(Plain):
    """Kind `triton`."""

    name = "triton"
    title = "Triton: compiled kernels and their metadata"
    stability = 20
    path_bound = True
    inert: tuple[str, ...] = ("*.source", "*.ttir", "*.ttgir", "*.llir", "*.ptx", "*.amdgcn")
    debug: tuple[str, ...] = ("*.ttir", "*.ttgir", "*.llir", "*.ptx", "*.amdgcn")
    lean: Mapping[str, str] = MappingProxyType({"TRITON_STORE_BINARY_ONLY": "1"})  # in no key: 3.8.0 and 3.9.0 hit with and without it (measured)
    depth = 1

    def pins(self, live: str) -> Mapping[str, str]:
        """`TRITON_CACHE_DIR`, and the constant directory of libcuda that is in the key of `cuda_utils`."""
        return {"TRITON_CACHE_DIR": f"{live}/{self.name}", libcuda.VARIABLE: f"{live}/{libcuda.DIRECTORY}"}

    def keep(self, path: str, size: int) -> Keep:
        """Everything in a key's own directory; a writer that died left `tmp.pid_*` behind."""
        if "/tmp.pid_" in path:
            return Keep("drop", "half-written entry of a writer that died")
        return KEEP

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Triton's version and the capability decide; the modules also need ABI and processor; no variable of the key may appear."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", "pkg.triton"])
        rows += gpu.rows(self.name, facts, toolkit=max(facts.get("factor.toolkits") or [0]))
        rows += same(self.name, facts, ["gpu.sm_count"], severity="soft", remedy="launch configurations may be chosen by it: some kernels may be new")
        need = "install a C compiler (gcc, clang, or CC): hits need none, but a kernel outside of the baked set would fail, not just be slow"
        rows.append(Row("tool.cc", "present", True, "soft", self.name, need))
        file = "the key of Triton's launcher module holds what the program `file` says: it would be built again, which needs a C compiler"
        rows += same(self.name, facts, ["tool.file.found"], severity="soft", remedy=file)
        for name in (*KEY_VARIABLES, *OTHER_VARIABLES):
            value = facts.get(f"env.{name}")
            remedy = f"unset {name}: being set changes every key" if value is None else f"set {name} as at the bake"
            rows.append(Row(f"env.{name}", "eq", value, "hard", self.name, remedy))
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Kernels, architectures, Triton versions, as the metadata files say."""
        return triton_entry.factors(root)

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Entries that Triton would not find again or that crash it (cases O-08, O-11, O-14)."""
        found = zero_bytes(self.name, root, paths)
        entries: dict[str, list[str]] = {}
        for path in paths:
            head, slash, tail = path.partition("/")
            if not slash or not _KEY.fullmatch(head) or "/" in tail:
                found.append(_foreign(path))
            else:
                entries.setdefault(head, []).append(tail)
        empty = {finding.message.partition(" ")[0] for finding in found}
        for key, names in sorted(entries.items()):
            if not any(f"{key}/{name}" in empty for name in names):
                found += triton_entry.problems(root, key, names)
        return [*found, *triton_entry.whole(root, entries)]


def _foreign(path: str) -> Finding:
    return Finding(
        "triton-foreign",
        "hard",
        Triton.name,
        f"{printable(path)} is not below a key's directory: another process id or another cache manager will not find it again",
        printable(path.partition("/")[0]),
        "52 characters of base32",
        "take TRITON_CACHE_MANAGER, or what else moves Triton's directory, out of the server's environment and bake again",
    )
