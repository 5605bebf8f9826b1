"""The short child that inspects the model class, and the cache of its answer below VLLM_CACHE_ROOT/modelinfos."""

import json
import subprocess
import sys
from pathlib import Path


def inspect(architecture):
    """Class facts of an architecture, asked of a child process unless cached."""
    from vllm.sim.compiler import vllm_root

    path = vllm_root() / "modelinfos" / f"vllm-model_executor-models-{architecture}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([sys.executable, "-m", "vllm.model_executor.models.registry", architecture], check=True, capture_output=True, text=True)
        path.write_text(done.stdout)
    return json.loads(path.read_text())


if __name__ == "__main__":
    import torch

    print(json.dumps({"architecture": sys.argv[1], "is_text_generation_model": True, "torch": torch.__version__, "file": Path(__file__).name}))
