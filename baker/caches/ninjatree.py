"""Trees that ninja builds and judges by modification times: torch extensions and TVM-FFI; each module is a directory.

Checked with ninja 1.13, torch 2.13 and apache-tvm-ffi 0.1.15: ninja runs at every load, compares each output's time with its inputs' and the hash
of the command text with `.ninja_log`. So times are kept to the nanosecond, files are copied (the owner writes `build.ninja` and the log in
place), and what is in the command text (compilers, CUDA_HOME, include paths of the packages) is a requirement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain, entries, zero_bytes
from baker.inside.finding import Finding
from baker.inside.manifest import Pattern, Row
from baker.spec import Target


class NinjaTree(Plain):
    """A kind whose entries are `<module>/{build.ninja,.ninja_log,.ninja_deps,*.o,<module>.so}`."""

    path_bound = True  # build.ninja and the log of dependencies hold absolute paths
    mtimes = True
    depth = 1
    mutable: tuple[Pattern, ...] = (
        Pattern("*/.ninja_log", "ninja appends to its log, and may compact it"),
        Pattern("*/.ninja_deps", "ninja appends to its log, and may compact it"),
        Pattern("*/lock", "a lock a module, taken on hits too"),
    )
    copy: tuple[str, ...] = ("*",)
    inert: tuple[str, ...] = ("*.c", "*.cc", "*.cpp", "*.cu", "*.o", "*.d", "*/build.ninja", "*/.ninja_log", "*/.ninja_deps")
    packages: tuple[str, ...] = ()
    variables: tuple[str, ...] = ("CXX", "CC", "CUDA_HOME")  # in the text of the commands

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Package versions and processor; ninja and the compiler are asked for even when nothing is built."""
        rows = same(self.name, facts, ["cpu.arch", *self.packages])
        rows.append(Row("tool.ninja", "present", True, "hard", self.name, "put ninja on PATH: it is run at every load, also when nothing is stale"))
        for name in self.variables:
            remedy = f"{name} is in the text of every build command: set it as at the bake, else all modules are built again"
            rows.append(Row(f"env.{name}", "eq", facts.get(f"env.{name}"), "hard", self.name, remedy))
        if target.is_gpu:
            rows += gpu.rows(self.name, facts)
        return rows

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Names of the modules."""
        return {"modules": sorted(path.parent.name for path in root.glob("*/build.ninja"))}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Modules without build file or shared object, and outputs older than their inputs (case O-32)."""
        found = zero_bytes(self.name, root, paths)
        for module, names in entries(paths, 1).items():
            found += module_problems(self.name, root, module, names)
        return found


def module_problems(kind: str, root: Path, module: str, names: Sequence[str], code: str = "module-partial") -> list[Finding]:
    """What makes ninja build the module `module` (a directory below `root`) again, or a loader refuse it."""

    def finding(text: str, found: Any, expected: Any) -> list[Finding]:
        return [Finding(code, "hard", kind, f"{module}{text}", found, expected, AGAIN)]

    shared = [name for name in names if name.endswith(".so")]
    if "build.ninja" not in names:
        return finding(" has no build.ninja", ", ".join(sorted(names)[:4]), "build.ninja")
    if not shared:
        return finding(" was not linked: its build did not end", ", ".join(sorted(names)[:4]), "a shared object")
    for name in shared:
        with (root / module / name).open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return finding(f"/{name} is no shared object", "no ELF header", "ELF")
        made = (root / module / name).stat().st_mtime_ns
        newer = [other for other in names if other.endswith(".o") and (root / module / other).stat().st_mtime_ns > made]
        if newer:
            return finding(f" would be linked again: {newer[0]} is newer than {name}", newer[0], "older objects")
    return []
