"""What compiling leaves behind: Inductor's cache, vLLM's AOT artifact, precompiled headers; and the counters that tell hit from miss."""

import getpass
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from torch._dynamo.utils import counters

from vllm.sim.script import log
from vllm.version import TORCH, VERSION


def _digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _compiler():
    return os.environ.get("CXX") or str(Path(sys.executable).parent / "g++")


def vllm_root():
    """VLLM_CACHE_ROOT or its default."""
    home = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/")) / ".cache"
    return Path(os.environ.get("VLLM_CACHE_ROOT") or Path(home) / "vllm")


class Inductor:
    """Inductor's cache below one directory."""

    def __init__(self, root):
        self.root = root

    def graph(self, key):
        """Compile one graph, or take it from the cache; counts as torch does."""
        stem = "c" + key[:50]
        entry = self.root / "fxgraph" / key[:2] / ("f" + key[:50]) / key[50:]
        (self.root / "locks").mkdir(parents=True, exist_ok=True)
        (self.root / "locks" / f"{stem}.lock").touch()
        subprocess.run([_compiler(), "--version"], check=True, stdout=subprocess.DEVNULL)
        if entry.exists() and (self.root / key[:2] / f"{stem}.so").exists():
            counters["inductor"]["fxgraph_cache_hit"] += 1
            counters["aot_autograd"]["autograd_cache_hit"] += 1
            return
        counters["inductor"]["fxgraph_cache_miss"] += 1
        source = self.root / key[:2] / f"{stem}.cpp"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"// graph {key}\n")
        source.with_suffix(".py").write_text(f"GRAPH = {key!r}\n")
        subprocess.run([_compiler(), str(source), "-O3", "-shared", "-fPIC", "-o", str(source.with_suffix(".so"))], check=True)
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(key)
        self.autograd(key)

    def autograd(self, key):
        """A new entry of AOTAutograd's cache."""
        counters["aot_autograd"]["autograd_cache_miss"] += 1
        entry = self.root / "aotautograd" / ("a" + key[:50]) / uuid.uuid5(uuid.NAMESPACE_OID, key).hex
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(key)
        counters["aot_autograd"]["autograd_cache_saved"] += 1


def _precompiled_header(temporary):
    header = temporary / "precompiled_headers" / "cpp_prefix.h"
    output = header.with_suffix(".h.gch")
    if os.environ.get("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "1") == "0" or output.exists():
        return
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("// header\n")
    subprocess.run([_compiler(), str(header), "-x", "c++-header", "-o", str(output)], check=True)


def _user():
    """Torch 2.13 names the directory by UID when the UID has no passwd entry."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


class Compiler:
    """The worker's view: one strategy, one key."""

    def __init__(self, model, argv):
        self.model = model
        # The plain cache is keyed by the graph alone; the artifact also by the served string, the arguments and the environment.
        self.graph_key = _digest(model.config, TORCH)
        environment = {k: v for k, v in os.environ.items() if k.startswith("VLLM_") and k not in _UNHASHED}
        self.artifact_key = _digest(VERSION, TORCH, str(model.path), model.config, argv, environment)
        self.aot = os.environ.get("VLLM_USE_AOT_COMPILE", "1") != "0"
        temporary = Path(tempfile.gettempdir()) / f"torchinductor_{_user()}"
        self.artifact = vllm_root() / "torch_compile_cache" / "torch_aot_compile" / self.artifact_key / "rank_0_0" / "model"
        root = self.artifact.parent.parent / "inductor_cache" if self.aot else Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or temporary)
        self.inductor = Inductor(root)
        self.temporary = temporary
        self.lengths = set()

    def start(self):
        """Everything that compiles before the server is ready. Returns True when something was compiled."""
        before = counters["inductor"]["fxgraph_cache_miss"]
        _precompiled_header(self.temporary)
        if self.aot:
            self._artifact()
        else:
            self.inductor.graph(_digest(self.graph_key, "start"))
        return counters["inductor"]["fxgraph_cache_miss"] > before

    def request(self, length):
        """The second graph at the first request; with `recompile` one for each prompt length."""
        shape = length if self.model.script.get("recompile") else 0
        if shape not in self.lengths and not (self.aot and not shape):
            self.inductor.graph(_digest(self.graph_key, "request", shape))
        self.lengths.add(shape)

    def _artifact(self):
        if self.artifact.exists() and self.model.script.get("aot") == "works":
            log("Worker", "INFO", "decorators.py:320", f"[backbone] Directly load AOT compilation from path {self.artifact}")
            return
        if self.artifact.exists():
            reason = "'function' object has no attribute 'finalize_loading'"
            log(
                "Worker",
                "WARNING",
                "decorators.py:334",
                f"[backbone] Compiling model again due to a load failure from {self.artifact}, reason: {reason}",
            )
            if os.environ.get("VLLM_FORCE_AOT_LOAD") == "1":
                raise AttributeError(reason)
            self.inductor.autograd(_digest(self.graph_key, uuid.uuid4().hex))
        else:
            self.inductor.graph(_digest(self.graph_key, "start"))
        self.artifact.parent.mkdir(parents=True, exist_ok=True)
        partial = self.artifact.with_suffix(".tmp")
        # The real file is a pickle that differs at each write
        unique = "" if self.model.script.get("aot") == "works" else uuid.uuid4().hex
        partial.write_text(f"artifact {self.artifact_key} {unique}\n")
        partial.replace(self.artifact)
        log("Worker", "INFO", "decorators.py:744", f"[backbone] saved AOT compiled function to {self.artifact}")


_UNHASHED = ("VLLM_CACHE_ROOT", "VLLM_API_KEY", "VLLM_PORT", "VLLM_FORCE_AOT_LOAD", "VLLM_NO_USAGE_STATS", "VLLM_CPU_KVCACHE_SPACE")
