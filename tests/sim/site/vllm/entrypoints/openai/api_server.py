"""The API server process: arguments, engine core, HTTP. Ends within a second on INT and TERM."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

import torch  # noqa: F401 - the API server has torch in it

from vllm.entrypoints.openai.serving import Server
from vllm.model_executor.models import registry
from vllm.sim.script import Model, log
from vllm.version import VERSION


def arguments(argv):
    """The arguments that the simulator understands; vLLM's other ones only enter the key."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")  # `serve MODEL`
    parser.add_argument("--model", default="")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--api-key", default=os.environ.get("VLLM_API_KEY"))
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--no-enable-prefix-caching", action="store_true")
    options, rest = parser.parse_known_args(argv)
    options.model = options.model or (options.words[1:] or [""])[0]
    options.keyed = [*rest, "--max-model-len", str(options.max_model_len)]
    return options


class Engine:
    """The engine core as a child; one request at a time."""

    def __init__(self, options):
        self.lock = threading.Lock()
        given = {"model": options.model, "argv": options.keyed, "load_format": options.load_format}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "vllm.v1.engine.core", json.dumps(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def wait_ready(self):
        """True once the worker is initialised, False when it died."""
        return bool(self.child.stdout.readline())

    def generate(self, prompt, count):
        """Token ids, or None when the engine died."""
        with self.lock:
            try:
                self.child.stdin.write(json.dumps({"prompt": prompt, "count": count}) + "\n")
                self.child.stdin.flush()
                reply = self.child.stdout.readline()
            except BrokenPipeError:
                reply = ""
        return json.loads(reply)["tokens"] if reply else None

    def close(self):
        """End the engine core; it ends its worker."""
        self.child.stdin.close()
        try:
            self.child.wait(0.8)
        except subprocess.TimeoutExpired:
            self.child.kill()


def _dead(model):
    last = model.script.get("die", {}).get("last", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    lines = ["Traceback (most recent call last):", '  File "api_server.py", line 1, in main', last]
    sys.stderr.write("".join(f"(APIServer pid={os.getpid()}) {line}\n" for line in lines))
    sys.stderr.flush()
    os._exit(1)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = arguments(argv)
    model = Model(options.model)
    for text in model.script.get("log", []):
        print(text, file=sys.stderr, flush=True)
    if model.script.get("print_env"):
        print("env:", dict(os.environ), "argv:", argv, file=sys.stderr, flush=True)
    log("APIServer", "INFO", "api_utils.py:347", f" version {VERSION}\n model   {options.model}")
    registry.inspect(model.config["architectures"][0])
    log("APIServer", "INFO", "model.py:733", f"Resolved architecture: {model.config['architectures'][0]}")
    engine = Engine(options)
    server = Server(options, model, engine, on_death=lambda: _dead(model))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0) if not server.listening else threading.Thread(target=server.stop).start())
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    if model.script.get("listen_early"):
        server.listen()
    if not engine.wait_ready():
        _dead(model)
    server.ready_at = time.monotonic() + model.script.get("unavailable_s", 0)
    log("APIServer", "INFO", "entry.py:140", f"Starting vLLM server on http://{options.host}:{options.port}")
    server.listen()
    server.wait()
    engine.close()
    log("APIServer", "INFO", "launcher.py:200", "Application shutdown complete.")


if __name__ == "__main__":
    main()
