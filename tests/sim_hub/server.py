"""The server: model info, tree, and file routes of the hub's HTTP API, over real sockets.

Access follows the real hub: metadata of a gated model is public, its files are not; a private or missing model answers 401 without a token
and 404 with one; a token that the hub does not know is 401 everywhere.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repo:
    """One model: files, and who may have them. `refs` maps branches and tags to commits."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    readers: tuple[str, ...] = ()  # tokens with access

    def commit_of(self, revision: str) -> str | None:
        """The commit behind a branch, tag or commit."""
        return {"main": self.commit, self.commit: self.commit, **self.refs}.get(revision)


@dataclass
class Fault:
    """Answer `status` for paths that contain `path`, `times` times (-1: always); `body` and `headers` go with it."""

    path: str
    status: int
    times: int = -1
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class SimHub:
    """State of a running hub; `requests` are (method, path, Authorization) in the order of arrival."""

    endpoint: str
    repos: dict[str, Repo] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def fault(self, path: str) -> Fault | None:
        """The scripted fault for a path, counted down."""
        for fault in self.faults:
            if fault.path in path and fault.times:
                fault.times -= 1
                return fault
        return None


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name: value for name, value in (("X-Error-Code", code), ("X-Error-Message", message)) if value}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: SimHub

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output clean; `SimHub.requests` is the log."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Authorization", "")))
        fault = self.hub.fault(path)
        if fault:
            self._send(fault.status, fault.body, fault.headers, body)
            return
        try:
            data, headers = self._route(path)
            self._send(200, data, headers, body)
        except _RefusedError as refusal:
            self._send(refusal.status, b'{"error": "refused"}', refusal.headers, body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _route(self, path: str) -> tuple[bytes, dict[str, str]]:
        if path.startswith("/api/models/"):
            name, _, rest = path.removeprefix("/api/models/").partition("/revision/")
            if "/tree/" in name:
                name, _, rest = name.partition("/tree/")
                repo, commit = self._repo(name, rest.split("/")[0], files=True)
                return json.dumps([_tree_entry(n, d) for n, d in repo.files.items()]).encode(), {"X-Repo-Commit": commit}
            repo, commit = self._repo(name, rest or "main", files=False)
            return json.dumps(_info(name, repo, commit)).encode(), {"X-Repo-Commit": commit}
        name, found, rest = path.removeprefix("/").partition("/resolve/")
        if not found:
            raise _RefusedError(404)
        revision, _, file = rest.partition("/")
        repo, commit = self._repo(name, revision, files=True)
        if file not in repo.files:
            raise _RefusedError(404, "EntryNotFound", "Entry not found")
        return repo.files[file], {"X-Repo-Commit": commit, "ETag": f'"{_oid(repo.files[file])}"', "Content-Type": "application/octet-stream"}

    def _repo(self, name: str, revision: str, *, files: bool) -> tuple[Repo, str]:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            raise _RefusedError(401, message="Invalid credentials in Authorization header")
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and token not in repo.readers):
            raise _RefusedError(404 if token else 401, "RepoNotFound", "Repository not found")
        if files and repo.gated and token not in repo.readers:
            raise _RefusedError(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted")
        commit = repo.commit_of(revision)
        if commit is None:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, commit


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _tree_entry(name: str, data: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}


def _info(name: str, repo: Repo, commit: str) -> dict[str, Any]:
    siblings = [{"rfilename": file, "size": len(data), "blobId": _oid(data)} for file, data in repo.files.items()]
    return {"id": name, "modelId": name, "sha": commit, "private": repo.private, "gated": "manual" if repo.gated else False, "siblings": siblings}


@contextmanager
def running(**repos: Repo) -> Iterator[SimHub]:
    """A hub on a free loopback port; keyword `org__name` is the model `org/name`."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub = SimHub(f"http://127.0.0.1:{server.server_port}", {name.replace("__", "/"): repo for name, repo in repos.items()})
        handler.hub = hub
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
