"""Make a model directory for the simulator: config, weights, and `sim.json`, the script of its faults.

| key of the script | effect |
|---|---|
| log: [TEXT] | raw lines on stderr before anything else |
| ready_after_s: S / hang: true | engine initialisation takes longer / never ends |
| listen_early: true | the port answers during initialisation: /health and /v1/models 200, completions 503 |
| unavailable_s: S | completions answer 503 for S seconds after initialisation |
| die: {when: "start" or "request", at: N, first, last, code, signal} | worker's traceback with `first`, API server's with `last`; or a plain signal |
| refuse: {status, length} | completions with a prompt of that length answer this status |
| usage_off: N / short: N | usage reports N tokens more than were sent (with usage_only: L only for prompts of that length) / N fewer are generated |
| cut_after: N | the stream is closed after N chunks |
| no_chat: true | /v1/chat/completions answers 400 |
| stubborn: N | N children in sessions of their own that ignore INT and TERM |
| writes_after_end_s: S | a detached child that goes on writing into the cache for S seconds after the server |
| unobserved: true | a child `python -I` that maps libtorch and lives as long as the server |
| print_env: true | the environment and the command line on stderr |
| new_file: true | one more cache file at each start |
| paths: [P, …] | each start writes the first of these cache paths that does not exist yet |
| odd_files: true | a FIFO, a socket and a link in the cache |
| zero_rank: true | an empty `rank_3_0/model` beside the good one |
| stray: true | files in HOME and in the temporary directory |
| tokens: "random" or "same" | generated tokens differ at every run / are all the same |
| step_s: S | seconds a generated token |
| recompile: true | one more graph for each new prompt length |
| kernels: [NAME] | Triton kernels compiled at the first request, or loaded from TRITON_CACHE_DIR |
| aot: "works" | the AOT artifact loads (default: it is refused and rewritten, as on the real CPU backend) |
| requests: PATH | appends one JSON line for each completion: prompt, max_tokens, cached (prefix cache hit) |
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 1024,
    "max_position_embeddings": 8192,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "eos_token_id": 0,
    "bos_token_id": 1,
    "pad_token_id": 2,
}


def write_weights(path: Path, seed: int = 0) -> None:
    """A small safetensors file; another seed gives other values of the same shape."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + random.Random(seed).randbytes(4096))


def make_model(directory: Path, script: dict[str, Any] | None = None, *, seed: int = 0, **config: Any) -> Path:
    """Write a model directory and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**CONFIG, **config}, indent=1))
    (directory / "tokenizer_config.json").write_text("{}")
    write_weights(directory / "model.safetensors", seed)
    (directory / "sim.json").write_text(json.dumps(script or {}))
    return directory
