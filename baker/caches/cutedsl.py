"""What caches on the CuTe DSL share: object files that are named by a hash below a fingerprint of all sources and versions.

Read in QuACK 0.6.5 (quack/cache/jit.py) and vLLM 0.33 (vllm_flash_attn/cute/cache_utils.py), not run. The fingerprint covers Python's minor
version, the versions of CUTLASS DSL and TVM-FFI and the sources; the capability is only in the key of a single object. Every hit takes a lock
file beside the object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import gpu
from baker.caches.base import same
from baker.caches.plain import AGAIN, Plain
from baker.inside.finding import Finding
from baker.inside.manifest import Pattern, Row
from baker.spec import Target

_OBJECT = re.compile(r"[0-9a-f]{64}/(?:[^/]+/)*[0-9a-f]{64}\.o")
_RUNTIME = ("pkg.nvidia-cutlass-dsl", "pkg.apache-tvm-ffi")


class ObjectCache(Plain):
    """A kind of `<fingerprint>/[<name>/]<key>.o`, relocatable ELF objects for the host that hold the cubins."""

    mutable: tuple[Pattern, ...] = (Pattern("*/*.lock", "a lock an object, taken on hits too"),)
    packages: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """Processor, Python, the packages of the fingerprint, and the capability."""
        rows = same(self.name, facts, ["cpu.arch", "python.abi", *_RUNTIME, *self.packages])
        for name in self.variables:
            value = facts.get(f"env.{name}")
            rows.append(Row(f"env.{name}", "eq", value, "hard", self.name, f"set {name} as at the bake: it decides what is looked for"))
        return [*rows, *gpu.rows(self.name, facts)]

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Objects by fingerprint."""
        return {path.name[:12]: sum(1 for _ in path.rglob("*.o")) for path in sorted(root.iterdir()) if path.is_dir()} if root.is_dir() else {}

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """Files that are no objects, and more than one fingerprint: all but one are of other sources and never found."""
        found = list(super().problems(root, paths))
        empty = {finding.message.partition(" ")[0] for finding in found}
        objects = [path for path in paths if path.endswith(".o") and path not in empty]
        for path in objects:
            with (root / path).open("rb") as file:
                if file.read(4) != b"\x7fELF":
                    found.append(Finding("object-damaged", "hard", self.name, f"{path} is no object file", "no ELF header", "ELF", AGAIN))
        prints = sorted({path.partition("/")[0] for path in objects if _OBJECT.fullmatch(path)})
        if len(prints) > 1:
            text = "objects below several fingerprints: those of other sources or versions are never found"
            found.append(
                Finding("object-stale", "hard", self.name, text, ", ".join(name[:12] for name in prints), "one", "bake again from an empty root")
            )
        return found
