"""The rows of the truth table: one image, baked for one machine; each row starts it on another machine or in another way.

A row's `reasons` explain, kind by kind, an outcome that differs from what start said; without a reason such an outcome is a disagreement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AOT_KEY = "in vLLM's compile key"
MORE = "what the bake compiled still hits; other arguments launch more specialisations, which start cannot know, so it names the argument"
ONE_LESS = "the damaged kernel is left out and compiled again, the others hit; taken unchecked it would be a hit, and wrong"
BESIDE = "vLLM hashes the variable and compiles anew; a graph beside its artifact that does not depend on it would hit: hidden with it, a few files"
UNSAFE = "the real code takes the damaged file without a word: a hit, and wrong. Hidden on purpose"


@dataclass(frozen=True)
class Row:
    """What varies. `machine`: arguments of machines.machine; `serve`: flag -> value (None: taken out); `env`: name -> value (None: unset).

    `model`: "link" serves the same model under another path. `damage`: name of a damage in play.DAMAGE. `uid`: user of the server.
    `read_only`: the image's file system is read-only, live a tmpfs. `one_machine`: can be played on a real machine too.
    """

    name: str
    why: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    serve: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    model: str = ""
    damage: str = ""
    uid: int = 0
    read_only: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def one_machine(self) -> bool:
        """Whether nothing about the machine varies."""
        return not self.machine


ROWS: tuple[Row, ...] = (
    Row("same", "the machine of the bake"),
    Row("driver-minor", "a patched driver of the same branch: cubins stay valid", machine={"driver": "580.126.09"}),
    Row("driver-newer", "the next driver branch: cubins stay valid", machine={"driver": "590.44.01", "cuda": "13.1"}),
    Row("driver-older", "a driver that serves CUDA 12.8 only: CUDA 13 cannot start there", machine={"driver": "570.86.15", "cuda": "12.8"}),
    Row("h200", "another product of the same capability", machine={"profile": "h200"}),
    Row("h100-pcie", "another product and SM count of the same capability", machine={"profile": "h100pcie"}),
    Row("mig", "a slice of the GPU: another name and SM count", machine={"profile": "h100mig"}),
    Row("a100", "an older capability", machine={"profile": "a100"}),
    Row("b200", "a newer capability", machine={"profile": "b200"}),
    Row("two-gpus", "two GPUs are visible, one is used", machine={"count": 2}),
    Row("max-num-batched-tokens", AOT_KEY, serve={"--max-num-batched-tokens": "1024"}, reasons={"triton": MORE}),
    Row("max-num-seqs", AOT_KEY + " since 0.29", serve={"--max-num-seqs": "8"}, reasons={"triton": MORE}),
    Row("max-model-len", AOT_KEY, serve={"--max-model-len": "1024"}),
    Row("dtype", AOT_KEY, serve={"--dtype": "float16"}, reasons={"triton": MORE}),
    Row(
        "neutral-arguments",
        "arguments that are in no key",
        serve={"--seed": "7", "--gpu-memory-utilization": "0.5", "--served-model-name": "other"},
    ),
    Row("other-path", "the model's path is in the key", model="link"),
    Row("online", "HF_HUB_OFFLINE unset: a directory is served, so nothing is replaced by a snapshot path", env={"HF_HUB_OFFLINE": None}),
    Row(
        "cuda-home",
        "CUDA_HOME is hashed by vLLM and stands in FlashInfer's build commands",
        env={"CUDA_HOME": "{cuda_link}"},
        reasons={"inductor": BESIDE},
    ),
    Row("vllm-hashed", "a per-pod value that vLLM hashes", env={"VLLM_LOOPBACK_IP": "127.0.0.1"}),
    Row(
        "neutral-variables",
        "per-pod values that nothing hashes",
        env={
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7",
            "VLLM_LOGGING_LEVEL": "DEBUG",
            "PYTHONHASHSEED": "42",
            "CUDA_VISIBLE_DEVICES": "0",
            "VLLM_SERVICE_HOST": "10.96.0.1",
        },
    ),
    Row("triton-set", "a variable of Triton's key, merely set", env={"MLIR_ENABLE_DUMP": "0"}),
    Row("home", "another HOME and XDG directories; not hashed since 0.27", env={"HOME": "{fresh}", "XDG_CACHE_HOME": "{fresh}/c"}),
    Row("uid", "an arbitrary user in group 0", uid=12345),
    Row("read-only", "a read-only root with live on a tmpfs", read_only=True),
    Row("aot-damaged", "one flipped byte in the AOT artifact", damage="aot-flip", reasons={"vllm": UNSAFE}),
    Row("aot-missing", "the artifact of rank 0 is gone", damage="aot-missing"),
    Row("cubin-damaged", "one flipped byte in a cubin", damage="cubin-flip", reasons={"triton": ONE_LESS}),
)


def by_name(name: str) -> Row:
    """The row of that name. Raises KeyError."""
    return {row.name: row for row in ROWS}[name]
