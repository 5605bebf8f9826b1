"""HTTP side of the driver against scripted sockets, one connection each."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from baker.inside.job import Request, RequestResult
from baker.inside.play import REFUSED_FOR_S, Client, Group, Ready, taken

Serve = Callable[[Callable[[socket.socket, bytes], None]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server whose answers a function writes; it gets the socket and the request's bytes. Returns the port."""
    listeners = []

    def start(answer: Callable[[socket.socket, bytes], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listeners.append(listener)

        def handle(connection: socket.socket) -> None:
            with connection:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
                while len(body) < length:
                    body += connection.recv(65536)
                answer(connection, head + b"\r\n\r\n" + body)

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _stream(*documents: Any, done: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    events = "".join(f"data: {json.dumps(doc)}\n\n" for doc in documents) + ("data: [DONE]\n\n" if done else "")
    return head + events.encode()


def _plain(status: int, document: Any) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


def _chunk(*ids: int) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "x", "token_ids": list(ids)}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
ASK = Request("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "stream": True}, 3, 2)
PLAIN = Request("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2}, 3, 2)


def test_a_whole_stream_counts(serve: Serve) -> None:
    seen = []

    def slow(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        data = _stream(_chunk(5), _chunk(6), USAGE)
        head, rest = data.split(b"\r\n\r\n", 1)
        connection.sendall(head + b"\r\n\r\n")
        time.sleep(0.1)
        connection.sendall(rest[:40])
        time.sleep(0.1)
        connection.sendall(rest[40:])

    result = Client(serve(slow), key="bearer-key").post(ASK, 5)
    assert (result.counted, result.status, result.tokens) == (True, 200, [5, 6])
    assert (result.prompt_tokens, result.output_tokens, result.why) == (3, 2, "")
    assert 0.1 < result.ttft_s <= result.total_s
    assert b"Authorization: Bearer bearer-key" in seen[0]
    assert json.loads(seen[0].partition(b"\r\n\r\n")[2]) == ASK.body


def test_plain_json_counts_too(serve: Serve) -> None:
    document = {"choices": [{"text": "xx", "token_ids": [5, 6]}], "usage": USAGE["usage"]}
    result = Client(serve(lambda c, _: c.sendall(_plain(200, document)))).post(PLAIN, 5)
    assert (result.counted, result.tokens, result.ttft_s <= result.total_s) == (True, [5, 6], True)


@pytest.mark.parametrize(
    ("data", "status", "why"),
    [
        (_stream(_chunk(5), _chunk(6), USAGE, done=False), 0, "ended before data: [DONE]"),
        (_stream(_chunk(5), done=False)[:-9], 0, "ended before data: [DONE]"),
        (_stream(_chunk(5), _chunk(6)), 200, "usage.prompt_tokens: found None, expected 3"),
        (_stream({"error": {"message": "Token id 9 is out of vocabulary", "code": 400}}), 400, "out of vocabulary"),
        (_stream({"error": "plain words"}), 0, "plain words"),
        (_stream([1]), 0, "found JSON list, expected an object"),
        (_stream({"choices": ["x"]}), 0, "a choice is str"),
        (_stream({"choices": [{"token_ids": ["x"]}]}), 0, "ValueError"),
        (_stream({"usage": {"prompt_tokens": "many"}}), 200, "found many, expected 3"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: {nonsense\n\n", 0, "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n", 0, "ended before data: [DONE]"),
        (b"nonsense\r\n\r\n", 0, "BadStatusLine"),
        (b"", 0, "RemoteDisconnected"),
        (_plain(503, {"error": "busy"}), 503, "HTTP 503"),
        (b"HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\nshort", 500, "HTTP 500: short"),
    ],
)
def test_what_does_not_count_says_why(serve: Serve, data: bytes, status: int, why: str) -> None:
    result = Client(serve(lambda c, _: c.sendall(data))).post(ASK, 5)
    assert (result.counted, result.status) == (False, status)
    assert why in result.why


def test_timeout_holds_for_the_whole_answer(serve: Serve) -> None:
    """A server that drips is no reason to wait for ever: each byte comes in time, the whole does not."""

    def drip(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _number in range(100):
            try:
                connection.sendall(b"data: {}\n\n")
            except OSError:
                return
            time.sleep(0.05)

    began = time.monotonic()
    result = Client(serve(drip)).post(ASK, 0.4)
    assert result.why == "no complete answer within 0.4 s"
    assert time.monotonic() - began < 2


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert taken(port)
    assert not taken(port)
    result = Client(port).post(ASK, 1)
    assert (result.counted, result.status) == (False, 0)
    assert result.why.startswith("ConnectionRefusedError")


def test_reasons_are_masked(serve: Serve) -> None:
    port = serve(lambda c, _: c.sendall(_plain(500, {"error": "key s3cret is odd"})))
    result = Client(port, "s3cret", lambda text: text.replace("s3cret", "***")).post(ASK, 5)
    assert "key *** is odd" in result.why


def test_a_group_starts_at_once_and_keeps_order(serve: Serve) -> None:
    gate = threading.Barrier(6, timeout=5)

    def answer(connection: socket.socket, request: bytes) -> None:
        first = json.loads(request.partition(b"\r\n\r\n")[2])["prompt"][0]
        gate.wait()  # passes only when all six requests are here together
        connection.sendall(_stream(_chunk(first, 1), USAGE))

    requests = [Request("/x", {"prompt": [n, 0, 0], "stream": True}, 3, 2) for n in range(6)]
    group = Group(Client(serve(answer)), requests, 5)
    assert group.done(5)
    assert [result.tokens[0] for result in group.finished()] == [0, 1, 2, 3, 4, 5]


def test_a_group_can_be_left(serve: Serve) -> None:
    release = threading.Event()
    port = serve(lambda c, _: release.wait(5) and None)
    group = Group(Client(port), [ASK, ASK], 5)
    assert not group.done(0.1)
    assert [(r.counted, r.why) for r in group.finished()] == [(False, "cut off: the run ended first")] * 2
    release.set()
    assert group.done(5)


def _result(status: int, counted: bool = False) -> RequestResult:
    return RequestResult(counted, status, 0, 0, 0, 0, why="" if counted else f"HTTP {status}")


def test_ready_rule(serve: Serve) -> None:
    health = {"status": 200}
    port = serve(lambda c, _: c.sendall(_plain(health["status"], {})))
    now = [0.0]
    ready = Ready(Client(port, clock=lambda: now[0]))
    for status in (0, 500, 502, 503, 504, 408, 425, 429):
        assert ready.verdict(_result(status)) == "wait"
    assert ready.verdict(_result(401)) == ready.verdict(_result(403)) == "unauthorized"
    assert ready.verdict(_result(404)) == "wait"
    now[0] = REFUSED_FOR_S - 0.1
    assert ready.verdict(_result(404)) == "wait"
    health["status"] = 503  # not healthy: the refusal belongs to the start, its time begins again
    now[0] = REFUSED_FOR_S + 1
    assert ready.verdict(_result(404)) == "wait"
    health["status"] = 200
    assert ready.verdict(_result(404)) == "wait"
    now[0] += REFUSED_FOR_S
    assert ready.verdict(_result(404)) == "failed"
    assert ready.last == "HTTP 404"
    assert ready.verdict(_result(200, counted=True)) == "ready"
