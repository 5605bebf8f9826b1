"""The sound tree and the sound image that the bad ones are variations of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baker.engines.base import Base, Image, Recipe
from baker.engines.oci import Oci
from baker.inside.finding import Finding
from baker.inside.manifest import SCHEMA, FileEntry, canonical, digest
from baker.pack import image as packing
from baker.pack.layer import Layer
from baker.pack.tree import Survey, survey

ROOT = "/opt/baker"
FILES = {
    "fxgraph/ab/abcd": b"\x80\x05graph\x00" * 40,
    "c4/c4mod.py": b"def call(args):\n    return args\n",
    "c4/c4mod.so": b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 300,
    "c4/c4mod.cpp": b"// source\n" * 100,
    "pkg/__init__.py": b"",
}


@dataclass(frozen=True)
class Decision:
    verdict: str
    reason: str = ""


class PlainKind:
    """A kind that keeps everything but what it was told; zero bytes are a hard finding unless the name allows it."""

    def __init__(self, name: str = "inductor", drop: Sequence[str] = (), refuse: Sequence[str] = ()) -> None:
        self.name, self.dropped, self.refused = name, drop, refuse

    def keep(self, path: str, size: int) -> Decision:
        if path in self.refused:
            return Decision("refuse", "this kind does not ship it")
        return Decision("drop", "debris of this kind") if path in self.dropped else Decision("keep")

    def role(self, path: str) -> str:
        return "inert" if path.endswith(".cpp") else "code"

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        return [
            Finding("empty-file", "hard", self.name, f"{path} is empty", "0 bytes", "content")
            for path in paths
            if (root / path).stat().st_size == 0 and not path.endswith("__init__.py")
        ]


def write(root: Path, files: Mapping[str, bytes] = FILES, order: Sequence[str] | None = None) -> Path:
    for name in order or list(files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return root


def look(root: Path, **options: object) -> Survey:
    return survey(root, PlainKind(), **options)  # type: ignore[arg-type]


def document(files: Sequence[FileEntry], root: str = ROOT, set_name: str = "cpu", kind: str = "inductor") -> dict[str, object]:
    rows = [{"path": f.path, "size": f.size, "sha256": f.sha256, "mode": f.mode, "role": f.role} for f in files]
    return {"schema": SCHEMA, "root": root, "plan": {"id": "p"}, "sets": [{"name": set_name, "kinds": [{"name": kind, "files": rows}]}]}


def layers(tree: Path, out: Path, *, root: str = ROOT, compression: str = "gzip", created: int = 0) -> tuple[tuple[Layer, ...], str]:
    found = look(tree)
    manifest = canonical(document(found.files, root))
    packer = packing.Packer(root, out, created, compression)
    kind = packing.KindTree("inductor", 40, tree, found.files)
    return packer.layers("cpu", [kind], b"PK-start", {"vllm": b"#!/bin/sh\n"}, manifest), digest(manifest)


def recipe(tree: Path, out: Path, *, base: Base | None = None, **options: object) -> Recipe:
    base = base or Oci().resolve("scratch")
    packed, manifest_digest = layers(tree, out, **options)  # type: ignore[arg-type]
    env = packing.environment(
        (base.config.get("config") or {}).get("Env") or [], ROOT, {"TORCHINDUCTOR_CACHE_DIR": f"{ROOT}/live/inductor"}, manifest_digest
    )
    labels = packing.labels(
        root=ROOT, plan_id="p", set_name="cpu", arch="cpu", kinds=["inductor"], versions={"torch": "2.13.0"}, manifest_digest=manifest_digest
    )
    return Recipe(base, packed, env, labels, packing.entrypoint("/usr/bin/python3", ROOT, ["vllm"]), ["serve", "m"], 0)


def build(tree: Path, out: Path, destination: str, tag: str = "", *, base: Base | None = None, **options: object) -> Image:
    return Oci().build(recipe(tree, out, base=base, **options), destination, tag)


def hashes(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in root.rglob("*") if p.is_file() and not p.is_symlink()}
