"""Tiny models for the bed, one a family that compiles differently; weights are never needed (`--weights dummy`).

The dense one is bench/tiny_model.py's; the others share its tokenizer and have shapes that the real kernels accept (MLA wants latents of 512 and 64,
block FP8 multiples of 128).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_COMMON: Mapping[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "moe": {
        **_COMMON,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    "mla": {
        **_COMMON,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    },
    "fp8": {
        **_COMMON,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_key_value_heads": 2,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"},
    },
}


def dense(directory: Path, python: str, env: Mapping[str, str]) -> Path:
    """The tiny Qwen2 with tokenizer and real weights, made by bench/tiny_model.py in the server's environment."""
    if not (directory / "config.json").is_file():
        subprocess.run([python, str(REPOSITORY / "bench" / "tiny_model.py"), str(directory)], env=dict(env), check=True, capture_output=True)
    return directory


def family(name: str, directory: Path, tokenizer: Path) -> Path:
    """A model directory of FAMILIES without weights; tokenizer files are copied from `tokenizer`."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy2(tokenizer / file, directory / file)
    (directory / "config.json").write_text(json.dumps(FAMILIES[name], indent=1) + "\n")
    return directory
