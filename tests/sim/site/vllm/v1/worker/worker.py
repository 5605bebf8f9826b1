"""The worker process: compiles, and turns prompts into tokens. One JSON line in, one out; logs go to stderr."""

import hashlib
import json
import os
import random
import sys
import time
import traceback

import torch  # noqa: F401 - a worker has torch in it

from vllm.sim import debris
from vllm.sim.compiler import Compiler
from vllm.sim.script import Model, log


def _fail(fault):
    """Die as scripted: by a signal, or by an exception whose traceback is the root cause."""
    if fault.get("signal"):
        os.kill(os.getpid(), fault["signal"])
    try:
        raise RuntimeError("simulated")
    except RuntimeError:
        text = traceback.format_exc().strip().replace("RuntimeError: simulated", fault.get("first", "RuntimeError: scripted"))
        log("Worker", "ERROR", "multiproc_executor.py:900", "WorkerProc failed to start.\n" + text)
    sys.stderr.flush()
    os._exit(fault.get("code", 1))


class Worker:
    """One model, its compiler, and the count of requests."""

    def __init__(self, options):
        self.model = Model(options["model"])
        self.script = self.model.script
        self.weights = self.model.weights(options["load_format"])
        self.compiler = Compiler(self.model, options["argv"])
        self.requests = 0

    def start(self):
        """Initialise; scripted faults of the start happen here."""
        fault = self.script.get("die", {})
        if fault.get("when") == "start":
            _fail(fault)
        while self.script.get("hang"):
            time.sleep(1)
        time.sleep(self.script.get("ready_after_s", 0))
        self.kept = debris.processes(self.script, self.compiler.inductor.root)
        debris.files(self.script, self.compiler.inductor.root, self.compiler.artifact)
        return self.compiler.start()

    def tokens(self, prompt, count):
        """Greedy tokens: a hash of weights, prompt and position, so that other weights give other tokens."""
        self.requests += 1
        fault = self.script.get("die", {})
        if fault.get("when") == "request" and self.requests >= fault.get("at", 1):
            _fail(fault)
        self.compiler.request(len(prompt))
        if self.requests == 1 and self.script.get("kernels"):
            from vllm.sim import kernels

            kernels.launch(self.script["kernels"])
        vocabulary = self.model.config["vocab_size"]
        kind = self.script.get("tokens")
        if kind == "random":
            return [random.SystemRandom().randrange(vocabulary) for _ in range(count)]
        if kind == "same":
            return [7] * count
        seed = hashlib.sha256(f"{self.weights} {prompt}".encode()).digest()
        return [int.from_bytes(hashlib.sha256(seed + i.to_bytes(4, "little")).digest()[:4], "little") % vocabulary for i in range(count)]


def main():
    worker = Worker(json.loads(sys.argv[1]))
    compiled = worker.start()
    print(json.dumps({"ready": True, "compiled": compiled}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"tokens": worker.tokens(request["prompt"], request["count"])}), flush=True)


if __name__ == "__main__":
    main()
