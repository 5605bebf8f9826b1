"""The engine-core process: owns the worker, reports the time of its initialisation, passes requests through."""

import json
import subprocess
import sys
import time

import torch  # noqa: F401 - an engine core has torch in it

from vllm.sim.script import log
from vllm.version import VERSION


def main():
    options = sys.argv[1]
    model = json.loads(options)["model"]
    log("EngineCore", "INFO", "core.py:133", f"Initializing a V1 LLM engine (v{VERSION}) with config: model={model!r}")
    began = time.monotonic()
    worker = subprocess.Popen(
        [sys.executable, "-m", "vllm.v1.worker.worker", options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    first = worker.stdout.readline()
    if not first:
        log(
            "EngineCore", "ERROR", "core.py:1100", "EngineCore failed to start.\nTraceback (most recent call last):\n  worker\nException: worker died"
        )
        sys.exit(1)
    took = time.monotonic() - began
    compilation = f" (compilation: {took:.2f} s)" if json.loads(first)["compiled"] else ""
    log("EngineCore", "INFO", "core.py:402", f"init engine (profile, create kv cache, warmup model) took {took:.2f} s{compilation}")
    sys.stdout.write(first)
    sys.stdout.flush()
    for line in sys.stdin:
        worker.stdin.write(line)
        worker.stdin.flush()
        reply = worker.stdout.readline()
        if not reply:
            log("EngineCore", "ERROR", "core.py:1150", "EngineCore encountered a fatal error.")
            sys.exit(1)
        sys.stdout.write(reply)
        sys.stdout.flush()
    worker.stdin.close()
    worker.wait()


if __name__ == "__main__":
    main()
