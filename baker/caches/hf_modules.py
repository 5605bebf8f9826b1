"""Code of models that bring their own (`HF_MODULES_CACHE`, trust_remote_code): Python sources that transformers copies from the model's repository.

Checked with transformers 5.19 (real copies). The files are in the check of vLLM's AOT artifact by content, and transformers copies over them when
they differ from the model's, through a link: so they are copied into live. They are code of the model's commit, which the plan holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches.base import KEEP, Keep, same
from baker.caches.plain import Plain
from baker.inside.manifest import Row
from baker.spec import Target


class HfModules(Plain):
    """Kind `hf_modules`."""

    name = "hf_modules"
    title = "transformers: code of models with trust_remote_code"
    stability = 10
    mtimes = True  # Python writes byte code beside the sources, and takes it only when it names the source's time
    copy: tuple[str, ...] = ("*",)

    def pins(self, live: str) -> Mapping[str, str]:
        """`HF_MODULES_CACHE`; its default is `$HF_HOME/modules`."""
        return {"HF_MODULES_CACHE": f"{live}/{self.name}"}

    def keep(self, path: str, size: int) -> Keep:
        """Sources, and their byte code: without it the first import of every start would write it."""
        return KEEP if path.endswith((".py", ".pyc")) else Keep("drop", "not a Python source")

    def rows(self, facts: Mapping[str, Any], target: Target) -> Sequence[Row]:
        """The names of the directories are transformers' own."""
        return same(self.name, facts, ["pkg.transformers"])

    def factors(self, root: Path) -> Mapping[str, Any]:
        """Names of the packages, commit included."""
        return {"packages": sorted(path.parent.relative_to(root).as_posix() for path in root.rglob("*.py") if path.name != "__init__.py")}
