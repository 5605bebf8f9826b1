"""Runtime `command`: any program that fills caches and ends, such as a torch or Triton script, or another engine's own warm-up.

It is run to its end, again until a run adds no file, and proven the same way. Results are not compared: baker does not know what a program computes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baker.caches import ALL as KINDS
from baker.errors import UsageError
from baker.inside.finding import Finding
from baker.inside.job import Request, Stage, Watch
from baker.inside.manifest import Pattern
from baker.runtimes.base import Script
from baker.spec import Interpreter, Model, Plan, Profile, Strategy, Target, Transient

_LARGEST = 64 << 20  # bytes of a word's file that is hashed into the plan; programs are small, data is named by its path
_NOT_HERE = ("bytecode", "vllm")  # judged by what a server imports; vLLM's own tree
_CPU = ("inductor", "triton", "numba", "torch_extensions", "tvm_ffi", "hf_modules")
_WATCHED = ["TORCH_*", "TORCHINDUCTOR_*", "TRITON_*", "FLASHINFER_*", "CUDA_HOME", "CXX", "CC", "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY"]


class Command:
    """Kind `command`: a program and its arguments, from behind `--`."""

    name = "command"
    once = True
    ranked: tuple[str, ...] = ()
    masked: tuple[str, ...] = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY")

    def kinds(self, target: Target) -> tuple[str, ...]:
        """Everything that no server is needed for."""
        names = tuple(kind.name for kind in KINDS if kind.name not in _NOT_HERE)
        return names if target.is_gpu else tuple(name for name in names if name in _CPU)

    def world(self, serve: Sequence[str]) -> int:
        """Unknown: one."""
        return 1

    def version(self, interpreter: Interpreter) -> str:
        """Of torch, for reports; "" without it."""
        return interpreter.packages.get("torch", "")

    def require(self, interpreter: Interpreter, target: Target) -> None:
        """Nothing: the program says what it lacks."""

    def transport(self) -> Mapping[str, int | None]:
        """A program does not listen."""
        return {}

    def listen(self, port: int) -> tuple[str, ...]:
        """A program does not listen."""
        return ()

    def serve(self, model: Model, target: Target, extra: Sequence[str]) -> tuple[str, ...]:
        """The command; words that name files here become absolute, because it runs in another directory. Raises UsageError without one."""
        if not extra:
            raise UsageError(
                "runtime command needs a program",
                code="no-command",
                found="nothing after --",
                expected="-- PROGRAM ARGS …",
                remedy="write it behind --, for example: -- python warm.py",
            )
        words = [str(Path(word).absolute()) if "/" not in word[:1] and _is_file(word) and index else word for index, word in enumerate(extra)]
        first = words[0]
        if not _python(first):
            found = shutil.which(first)
            if found is None:
                raise UsageError(
                    f"no such program: {first}",
                    code="no-command",
                    found=first,
                    expected="an executable file",
                    remedy="give its path, or python SCRIPT",
                )
            words[0] = str(Path(found).absolute())
        return tuple(words)

    def command(self, interpreter: Interpreter, serve: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """`python SCRIPT` and `python -m MODULE` with the interpreter of --python; else the program alone."""
        if not _python(serve[0]):
            return (serve[0],), tuple(serve[1:])
        count = 3 if serve[1:2] == ["-m"] or tuple(serve[1:2]) == ("-m",) else 2
        return (interpreter.executable, *serve[1:count]), tuple(serve[count:])

    def files(self, serve: Sequence[str]) -> Mapping[str, str]:
        """sha256 of each word of the command that is a file, up to 64 MiB: another program is another plan."""
        return {word: hashlib.sha256(Path(word).read_bytes()).hexdigest() for word in serve if word.startswith("/") and _is_file(word)}

    def environment(self, model: Model, target: Target) -> Mapping[str, str]:
        """Nothing of its own."""
        return {}

    def bake_arguments(self, weights: str) -> tuple[str, ...]:
        """Nothing is added at bake."""
        return ()

    def strategies(self, target: Target, version: str) -> tuple[Strategy, ...]:
        """The program as it is."""
        no_header = {} if target.is_gpu else {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
        return (Strategy("command", "the program's own caches", no_header, ()),)

    def script(self, plan: Plan, profile: Profile) -> Script:
        """No requests."""
        return Script(Request("", {}), (), Stage("reference", []))

    def watch(self, version: str) -> tuple[Watch, ...]:
        """No lines are known."""
        return ()

    def transient(self, version: str) -> tuple[Transient, ...]:
        """File locks."""
        return (Transient("tmp", Pattern("*.lock", "file lock")),)

    def neutral(self, version: str, target: Target, strategy: str) -> Mapping[str, Any]:
        """Arguments are not in the keys of kernels: a difference is said. Variables of the compilers are in Inductor's."""
        return {"transport": {}, "arguments": [], "variables": ["TRITON_STORE_BINARY_ONLY"], "watched": _WATCHED, "kinds": []}

    def problems(self, serve: Sequence[str], kind: str, paths: Sequence[str]) -> Sequence[Finding]:
        """Nothing is known to be missing."""
        return []

    def shim(self, interpreter: Interpreter, root: str) -> Mapping[str, bytes]:
        """No program has to be caught."""
        return {}


def _python(word: str) -> bool:
    return word in ("python", "python3")


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file() and Path(word).stat().st_size <= _LARGEST
    except (OSError, ValueError):
        return False
