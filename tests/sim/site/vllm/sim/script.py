"""The model directory as the simulator sees it: config, script of faults, identity of the weights."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path


class Model:
    """One model directory."""

    def __init__(self, path):
        self.path = Path(path)
        self.config = json.loads((self.path / "config.json").read_text())
        script = self.path / "sim.json"
        self.script = json.loads(script.read_text()) if script.exists() else {}
        # Faults of this installation, over those of the model: a test can set them between a bake and its proof.
        installed = Path(__file__).with_name("faults.json")
        if installed.exists():
            self.script.update(json.loads(installed.read_text()))

    def weights(self, load_format):
        """Digest of the weights; dummy weights are the same everywhere."""
        if load_format == "dummy":
            return "dummy"
        return hashlib.sha256((self.path / "model.safetensors").read_bytes()).hexdigest()


def log(name, level, where, text):
    """One record in the format of vLLM's formatter: each line of the text has the prefix."""
    prefix = f"({name} pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{where}] "
    sys.stderr.write("".join(prefix + line + "\n" for line in text.split("\n")))
    sys.stderr.flush()
