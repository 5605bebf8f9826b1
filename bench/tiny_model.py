"""Make a tiny causal language model with random weights and a byte-level tokenizer: `python bench/tiny_model.py DIRECTORY [--family qwen2|llama]`.

It needs the server's environment (torch, transformers, tokenizers) and takes seconds. The directory is complete or absent: it appears by one rename.
Weights are drawn with a standard deviation of 0.3, because with the usual 0.02 greedy decoding repeats one token and proves nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

SEED = 0
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
}
TEXT = ("a cold start compiles what a warm start only reads", "prefill decode batch sequence token cache layer image proof")


def tokenizer(directory: Path) -> int:
    """Train a byte-level BPE tokenizer on a few words, save it, return its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<eos>", "<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator([f"{line} " * 20 for line in TEXT], trainer)
    PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", pad_token="<pad>").save_pretrained(directory)
    return int(bpe.get_vocab_size())


def weights(directory: Path, family: str, vocabulary: int) -> None:
    """Save a bfloat16 model whose embedding has at least `vocabulary` rows, rounded up to 64 as kernels like it."""
    import torch
    import transformers

    name = {"qwen2": "Qwen2", "llama": "Llama"}[family]
    config = getattr(transformers, f"{name}Config")(vocab_size=-(-vocabulary // 64) * 64, **SHAPE)
    torch.manual_seed(SEED)
    getattr(transformers, f"{name}ForCausalLM")(config).to(torch.bfloat16).save_pretrained(directory)


def main() -> int:
    """Parse the command line and make the model; exit 2 when something else is in the way."""
    parser = argparse.ArgumentParser(description="Make a tiny causal language model with random weights.")
    parser.add_argument("directory", type=Path, help="where to put it; left alone when a model is there already")
    parser.add_argument("--family", choices=("qwen2", "llama"), default="qwen2")
    arguments = parser.parse_args()
    target: Path = arguments.directory
    if (target / "config.json").is_file():
        print(f"{target}: a model is there already")
        return 0
    if target.exists():
        print(f"{target} exists and holds no config.json; remove it or choose another directory", file=sys.stderr)
        return 2
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        weights(temporary, arguments.family, tokenizer(temporary))
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            file.chmod(0o644)  # the proof starts the server as another user
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print(f"{target}: {arguments.family}, {sum(file.stat().st_size for file in target.iterdir())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
