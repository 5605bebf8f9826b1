"""Load a configuration class that a model directory brings with it (trust_remote_code); print its answer and where its code came from."""

import json
import os
import sys
from pathlib import Path

model = Path(os.environ["HOME"]) / "model"
if not model.exists():
    model.mkdir()
    (model / "configuration_demo.py").write_text(
        "from transformers import PretrainedConfig\n\n\nclass DemoConfig(PretrainedConfig):\n    model_type = 'demo'\n    answer = 42\n"
    )
    (model / "config.json").write_text(json.dumps({"model_type": "demo", "auto_map": {"AutoConfig": "configuration_demo.DemoConfig"}}))

from transformers import AutoConfig  # noqa: E402 - the model must be there first

config = AutoConfig.from_pretrained(str(model), trust_remote_code=True)
print(json.dumps({"answer": config.answer, "file": sys.modules[type(config).__module__].__file__}))
