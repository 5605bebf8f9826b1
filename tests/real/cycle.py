"""One kind, one real library, the whole way: fill live in a process, survey, pack a layer, unpack it, fill live as `start` does, run again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.caches import by_name
from baker.inside import fill
from baker.inside.inventory import walk
from baker.inside.live import Live
from baker.inside.manifest import Kind
from baker.pack.image import KindTree, Packer
from baker.pack.tree import Survey, survey
from baker.pack.unpack import unpack

PROGRAMS = Path(__file__).parent / "programs"
SET = "cpu"


@dataclass(frozen=True)
class Cycle:
    """A root with `live/<kind>`, the library's interpreter, and the program that uses the library."""

    root: Path
    kind: str
    python: str
    program: str

    @property
    def live(self) -> Path:
        """The kind's directory as the library sees it."""
        return self.root / "live" / self.kind

    def run(self, **env: str) -> dict[str, Any]:
        """Run the program with the kind's variables; returns what it printed last. Raises AssertionError with its error."""
        pins = by_name(self.kind).pins(str(self.root / "live"))
        path = os.pathsep.join([str(Path(self.python).parent), os.environ["PATH"]])
        complete = {"PATH": path, "HOME": str(self.root), **pins, **env}
        self.live.mkdir(parents=True, exist_ok=True)
        words = [self.python, str(PROGRAMS / self.program)]
        done = subprocess.run(words, env=complete, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def bake(self, out: Path) -> Survey:
        """Survey live, pack it as a layer, unpack the layer at the root: afterwards `sets/` is as in an image and live is empty."""
        kind = by_name(self.kind)
        found = survey(self.live, kind, mtimes=kind.mtimes)
        layers = Packer(str(self.root), out, 0).kind_layers(SET, [KindTree(kind.name, kind.stability, self.live, found.files)])
        unpack([layer.path for layer in layers], self.root)
        return found

    def fill(self, found: Survey) -> None:
        """Show the kind as `start` does: links, copies where the owner writes in place."""
        kind = by_name(self.kind)
        (self.root / "live").mkdir(exist_ok=True)
        entry = Kind(kind.name, {}, (), tuple(found.files), kind.mutable, kind.copy, tuple(found.directories))
        job = fill.Job(entry, str(self.root / "sets" / SET / kind.name))
        fill.fill(Live(str(self.root / "live"), False, -1), "sha256:" + "0" * 64, SET, [job], [])

    def tree(self) -> Mapping[str, Any]:
        """Every file and link of live: path -> [type, size, sha256 or target]; directories left out, for making one is no new file."""
        return {path: list(entry) for path, entry in walk(str(self.live)).items() if entry[0] in ("file", "link")}
