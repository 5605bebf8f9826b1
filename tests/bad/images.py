"""An unpacked image at any root, made by hand, and named ways to damage it. Each damage returns what `start` must name.

The tree is the one of the artifact specification: manifest.json, start, sets/<set>/<kind>/…, live/<kind>/ (empty).
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baker.inside.manifest import canonical, digest

SET = "cpu"
KINDS = ("vllm", "inductor")
NEUTRAL = {
    "transport": {"--host": 1, "--port": 1, "--api-key": 1},
    "arguments": ["--seed"],
    "variables": ["VLLM_LOGGING_LEVEL", "VLLM_NIXL_SIDE_CHANNEL_HOST"],
    "watched": ["VLLM_*"],
    "kinds": ["vllm", "inductor"],
}
# A server that says what it got, so that a test can see what it would find.
SERVER = """
import json, os, sys
roots = {name: os.environ.get(name) for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR")}
files = {n: sorted(os.path.relpath(os.path.join(d, f), r) for d, _, fs in os.walk(r) for f in fs) for n, r in roots.items() if r}
print(json.dumps({"pid": os.getpid(), "argv": sys.argv[1:], "home": os.environ.get("HOME"), "roots": roots, "files": files}))
"""


@dataclass
class Image:
    """An unpacked image at `root`; `document` is its manifest, `environ` what the image's configuration sets."""

    root: Path
    document: dict[str, Any]
    argv: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)

    def kind(self, name: str) -> dict[str, Any]:
        return next(kind for kind in self.document["sets"][0]["kinds"] if kind["name"] == name)

    def pristine(self, kind: str) -> Path:
        return self.root / "sets" / SET / kind

    def write_manifest(self) -> None:
        """Write the manifest and bind the environment to it."""
        data = canonical(self.document)
        (self.root / "manifest.json").write_bytes(data)
        self.environ["BAKER_MANIFEST_DIGEST"] = digest(data)

    def thaw(self) -> None:
        """Make pristine writable, to damage it or to remove it."""
        for path in [self.root, *self.root.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def files(kind: str, count: int = 6, size: int = 300, seed: int = 1) -> dict[str, bytes]:
    """Content of a kind: every third file is inert (`.cpp`), one lies deep, one must be copied."""
    chance = random.Random(f"{kind}{seed}")
    made = {f"{'abc'[i % 3]}/entry{i}{('.so', '.py', '.cpp')[i % 3]}": chance.randbytes(size) for i in range(count)}
    made["deep/er/than/rest.bin"] = chance.randbytes(size)
    made["log/state.txt"] = b"rewritten in place\n"
    return made


def row(fact: str = "cpu.arch", op: str = "eq", value: Any = None, severity: str = "hard", remedy: str = "bake here") -> dict[str, Any]:
    value = os.uname().machine if value is None else value
    return {"fact": fact, "op": op, "value": value, "severity": severity, "owner": "test", "remedy": remedy}


def write_kind(directory: Path, name: str, content: Mapping[str, bytes], live: str) -> dict[str, Any]:
    """Write one kind's pristine files (0444 in 0555) and return its manifest entry."""
    entries = []
    for path, data in content.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o444)
        role = "inert" if path.endswith(".cpp") else "code"
        entries.append({"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": "0444", "role": role})
    variable = {"vllm": "VLLM_CACHE_ROOT", "inductor": "TORCHINDUCTOR_CACHE_DIR"}[name]
    return {
        "name": name,
        "variables": {variable: f"{live}/{name}"},
        "rows": [row()],
        "files": sorted(entries, key=lambda e: str(e["path"])),
        "mutable": [{"pattern": "locks/*", "reason": "lock files"}],
        "copy": ["log/*"],
        "directories": ["locks"],
        "path_bound": False,
    }


def make(root: Path, *, content: Callable[[str], Mapping[str, bytes]] = files, kinds: Sequence[str] = KINDS, zip_data: bytes = b"") -> Image:
    """Make a good image below `root`, with a server script and the command that was baked."""
    root.mkdir(parents=True)
    live = str(root / "live")
    made = [write_kind(root / "sets" / SET / name, name, content(name), live) for name in kinds]
    server = root.parent / "server.py"
    server.write_text(SERVER)
    program, argv = [sys.executable, "-I", "-S", str(server)], ["--model", "tiny", "--max-model-len", "4096"]
    document = {
        "schema": 1,
        "baker": "test",
        "root": str(root),
        "plan": {},
        "sets": [
            {
                "name": SET,
                "target": {"arch": "cpu", "product": ""},
                "strategy": {},
                "builder": {},
                "serve": {"program": program, "argv": argv, "env": {}, "python": sys.executable, "dist_info": []},
                "neutral": NEUTRAL,
                "kinds": made,
            }
        ],
    }
    for name in kinds:
        (root / "live" / name).mkdir(parents=True)
    (root / "live").chmod(0o775)
    if zip_data:
        (root / "start").write_bytes(zip_data)
    variables = {name: value for kind in made for name, value in kind["variables"].items()}
    image = Image(root, document, [*program, *argv], variables)
    image.write_manifest()
    for path in sorted((root / "sets").rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(0o555)
    return image


def _first(image: Image, kind: str, role: str = "code") -> Path:
    entry = next(e for e in image.kind(kind)["files"] if e["role"] == role)
    return image.pristine(kind) / str(entry["path"])


def flip(path: Path, at: int = 0) -> None:
    """Flip one bit of one byte, size and times unchanged."""
    mode, times = path.stat().st_mode, (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=times)
    path.chmod(mode)


def flipped_byte(image: Image) -> tuple[str, str]:
    path = _first(image, "inductor")
    flip(path, 17)
    return "file-damaged", str(path.relative_to(image.pristine("inductor")))


def missing_file(image: Image) -> tuple[str, str]:
    path = _first(image, "inductor")
    path.unlink()
    return "file-missing", str(path.relative_to(image.pristine("inductor")))


def extra_file(image: Image) -> tuple[str, str]:
    (image.pristine("inductor") / "a" / "extra.py").write_text("import os\n")
    return "file-extra", "a/extra.py"


def truncated_file(image: Image) -> tuple[str, str]:
    path = _first(image, "inductor")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    return "file-size", str(path.relative_to(image.pristine("inductor")))


def file_to_link(image: Image) -> tuple[str, str]:
    path = _first(image, "inductor")
    other = image.root.parent / "same-bytes"
    shutil.copy(path, other)
    path.unlink()
    path.symlink_to(other)
    return "file-type", str(path.relative_to(image.pristine("inductor")))


def directory_to_link(image: Image) -> tuple[str, str]:
    path = image.pristine("inductor") / "deep"
    other = image.root.parent / "same-tree"
    path.rename(other)
    path.symlink_to(other)
    return "file-type", "deep"


def kind_to_link(image: Image) -> tuple[str, str]:
    path = image.pristine("inductor")
    other = image.root.parent / "same-kind"
    path.rename(other)
    path.symlink_to(other)
    return "kind-unreadable", "is a link"


def kind_missing(image: Image) -> tuple[str, str]:
    shutil.rmtree(image.pristine("inductor"))
    return "kind-unreadable", "No such file"


def fifo(image: Image) -> tuple[str, str]:
    path = _first(image, "inductor")
    path.unlink()
    os.mkfifo(path)
    return "file-type", str(path.relative_to(image.pristine("inductor")))


def extra_fifo(image: Image) -> tuple[str, str]:
    os.mkfifo(image.pristine("inductor") / "a" / "pipe")
    return "file-extra", "a/pipe"


def odd_name(image: Image) -> tuple[str, str]:
    (image.pristine("inductor") / "a" / "new\nline").write_bytes(b"x")
    return "file-extra", "a/new\\nline"


# Damage to one kind: the other must stay visible.
OF_A_KIND = (
    flipped_byte,
    missing_file,
    extra_file,
    truncated_file,
    file_to_link,
    directory_to_link,
    kind_to_link,
    kind_missing,
    fifo,
    extra_fifo,
    odd_name,
)


def edited_manifest(image: Image) -> tuple[str, str]:
    """A changed file and a manifest that was edited to match it; the image's configuration knows better."""
    path = _first(image, "inductor")
    flip(path)
    bound = image.environ["BAKER_MANIFEST_DIGEST"]
    relative = str(path.relative_to(image.pristine("inductor")))
    next(e for e in image.kind("inductor")["files"] if e["path"] == relative)["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    image.write_manifest()
    image.environ["BAKER_MANIFEST_DIGEST"] = bound
    return "manifest-mismatch", "sha256:"


def truncated_manifest(image: Image) -> tuple[str, str]:
    """Truncated when the image was made: the digest matches."""
    path = image.root / "manifest.json"
    data = path.read_bytes()[:-40]
    path.write_bytes(data)
    image.environ["BAKER_MANIFEST_DIGEST"] = digest(data)
    return "manifest-damaged", "not JSON"


def missing_manifest(image: Image) -> tuple[str, str]:
    (image.root / "manifest.json").unlink()
    return "manifest-unreadable", "manifest.json"


def manifest_fifo(image: Image) -> tuple[str, str]:
    (image.root / "manifest.json").unlink()
    os.mkfifo(image.root / "manifest.json")
    return "manifest-unreadable", "not a regular file"


def unbound_manifest(image: Image) -> tuple[str, str]:
    del image.environ["BAKER_MANIFEST_DIGEST"]
    return "manifest-unbound", "BAKER_MANIFEST_DIGEST"


def newer_schema(image: Image) -> tuple[str, str]:
    image.document["schema"] = 99
    image.write_manifest()
    return "manifest-damaged", "$.schema: found 99"


def other_machine(image: Image) -> tuple[str, str]:
    image.document["sets"][0]["target"] = {"arch": "sm_90", "product": "NVIDIA H100 80GB HBM3"}
    image.write_manifest()
    return "no-set-fits", "sm_90"


# Damage to the whole image: every kind must be hidden.
OF_THE_IMAGE = (edited_manifest, truncated_manifest, missing_manifest, manifest_fifo, unbound_manifest, newer_schema, other_machine)
