"""HTTP side of the simulator: the routes and the stream format of vLLM 0.32's completion endpoint."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BLOCK = 16  # tokens of a prefix-cache block


class RefusalError(Exception):
    """An answer other than 200."""

    def __init__(self, status, message, kind="BadRequestError"):
        super().__init__(message)
        self.status, self.kind = status, kind


class Server:
    """State shared by the request threads."""

    def __init__(self, options, model, engine, on_death):
        self.options, self.model, self.engine, self.on_death = options, model, engine, on_death
        self.script = model.script
        self.served = options.served_model_name or options.model
        self.limit = options.max_model_len or model.config["max_position_embeddings"]
        self.ready_at = float("inf")
        self.listening = False
        self.blocks = set()
        self.lock = threading.Lock()

    def listen(self):
        """Bind the port and serve, once."""
        if not self.listening:
            self.listening = True
            ThreadingHTTPServer.request_queue_size = 256
            ThreadingHTTPServer.daemon_threads = True
            ThreadingHTTPServer.handle_error = lambda *_: None  # a client that hangs up is no news, and no reason to import traceback
            self.http = ThreadingHTTPServer((self.options.host, self.options.port), type("Bound", (Handler,), {"server_state": self}))
            self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
            self.thread.start()

    def stop(self):
        """End serve_forever."""
        self.http.shutdown()

    def wait(self):
        """Until stopped."""
        self.thread.join()

    def complete(self, body):
        """Prompt ids, token ids and usage of one completion. Raises RefusalError."""
        if time.monotonic() < self.ready_at:
            raise RefusalError(503, "the engine is not ready", "ServiceUnavailable")
        if body.get("model") != self.served:
            raise RefusalError(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
        prompt = body.get("prompt")
        prompt = list(prompt.encode()) if isinstance(prompt, str) else prompt
        count = body.get("max_tokens", 16)
        refuse = self.script.get("refuse", {})
        if refuse and refuse.get("length") in (None, len(prompt)):
            raise RefusalError(refuse.get("status", 500), "scripted refusal", "InternalServerError")
        if len(prompt) + count > self.limit:
            raise RefusalError(400, f"This model's maximum context length is {self.limit} tokens.")
        self._record(prompt, count)
        tokens = self.engine.generate(prompt, count - self.script.get("short", 0))
        if tokens is None:
            threading.Timer(0.3, self.on_death).start()
            raise RefusalError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "InternalServerError")
        off = self.script.get("usage_off", 0) if self.script.get("usage_only") in (None, len(prompt)) else 0
        shown = len(tokens) + off
        return prompt, tokens, {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + shown, "completion_tokens": shown}

    def _record(self, prompt, count):
        first = tuple(prompt[:BLOCK])
        with self.lock:
            cached = not self.options.no_enable_prefix_caching and len(first) == BLOCK and first in self.blocks
            self.blocks.add(first)
            if self.script.get("requests"):
                with Path(self.script["requests"]).open("a") as file:
                    file.write(json.dumps({"prompt": prompt, "max_tokens": count, "cached": cached}) + "\n")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_state = None

    def log_message(self, *args):
        """Quiet."""

    def _send(self, status, document):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _allowed(self):
        key = self.server_state.options.api_key
        if key and self.path.startswith("/v1") and self.headers.get("Authorization") != f"Bearer {key}":
            self._send(401, {"error": "Unauthorized"})
            return False
        return True

    def do_GET(self):
        if not self._allowed():
            return
        state = self.server_state
        if self.path == "/health":
            self._send(200, {})
        elif self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": state.served, "object": "model", "max_model_len": state.limit}]})
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not self._allowed():
            return
        state = self.server_state
        if self.path == "/v1/chat/completions" and state.script.get("no_chat"):
            self._send(400, {"error": {"message": "a chat template is required", "type": "BadRequestError", "param": None, "code": 400}})
            return
        if self.path != "/v1/completions":
            self._send(404, {"detail": "Not Found"})
            return
        try:
            prompt, tokens, usage = state.complete(body)
        except RefusalError as refusal:
            self._send(refusal.status, {"error": {"message": str(refusal), "type": refusal.kind, "param": None, "code": refusal.status}})
            return
        if body.get("stream"):
            self._stream(body, prompt, tokens, usage)
        else:
            time.sleep(state.script.get("step_s", 0) * len(tokens))
            choice = {
                "index": 0,
                "text": " x" * len(tokens),
                "finish_reason": "length",
                "token_ids": tokens if body.get("return_token_ids") else None,
            }
            self._send(200, {"object": "text_completion", "model": state.served, "choices": [choice], "usage": usage})

    def _chunk(self, document):
        data = f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _stream(self, body, prompt, tokens, usage):
        state = self.server_state
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {"id": "cmpl-sim", "object": "text_completion", "created": int(time.time()), "model": state.served}
        vocabulary = state.model.config["vocab_size"]
        outside = next((token for token in prompt if token >= vocabulary), None)
        if outside is not None:  # found only after the 200, as in vLLM
            self._chunk({"error": {"message": f"Token id {outside} is out of vocabulary", "type": "BadRequestError", "param": None, "code": 400}})
            tokens = []
        for index, token in enumerate(tokens):
            time.sleep(state.script.get("step_s", 0))
            if index == state.script.get("cut_after", -1):
                self.close_connection = True
                return
            choice = {"index": 0, "text": f" {token}", "logprobs": None, "finish_reason": "length" if index + 1 == len(tokens) else None}
            if body.get("return_token_ids"):
                choice.update({"token_ids": [token]}, **({"prompt_token_ids": prompt} if index == 0 else {}))
            self._chunk({**head, "choices": [choice]})
        if outside is None and (body.get("stream_options") or {}).get("include_usage"):
            self._chunk({**head, "choices": [], "usage": usage})
        self._chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
