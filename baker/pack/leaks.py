"""Secrets that must not get into a layer: by file name, by pattern in text, by literal value in any file (cases O-49, O-50).

Messages name the file and the kind of secret, never the value. Token forms are those that their issuers document: Hugging Face (`hf_`), AWS
access key ids (`AKIA`, `ASIA`), GitHub, GitLab, Slack, OpenAI-like (`sk-`), NVIDIA (`nvapi-`), and PEM private keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from baker.errors import ArtifactError

_LEFT = rb"(?<![A-Za-z0-9_])"
# (cheap test, exact form, what it is); the first is searched at memory speed, the second only where the first hit.
_FORMS: tuple[tuple[bytes, re.Pattern[bytes], str], ...] = tuple(
    (mark, re.compile(form), name)
    for mark, form, name in (
        (b"hf_", _LEFT + rb"hf_[A-Za-z0-9]{30,64}", "Hugging Face token"),
        (b"AKIA", _LEFT + rb"AKIA(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}", "AWS access key id"),
        (b"ASIA", _LEFT + rb"ASIA(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}", "AWS access key id"),
        (b"gh", _LEFT + rb"gh[pousr]_[A-Za-z0-9]{36,255}", "GitHub token"),
        (b"github_pat_", _LEFT + rb"github_pat_[A-Za-z0-9_]{40,255}", "GitHub token"),
        (b"glpat-", _LEFT + rb"glpat-[A-Za-z0-9_-]{20,64}", "GitLab token"),
        (b"xox", _LEFT + rb"xox[abeprs]-[A-Za-z0-9-]{20,255}", "Slack token"),
        (b"sk-", _LEFT + rb"sk-(?:(?:proj|ant|or|svcacct)-[A-Za-z0-9_-]{20,255}|[A-Za-z0-9]{20,128})", "API key (sk-)"),
        (b"nvapi-", _LEFT + rb"nvapi-[A-Za-z0-9_-]{40,128}", "NVIDIA API key"),
        (b"PRIVATE KEY-----", rb"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY-----", "private key"),
    )
)
# `scheme://user:password@host`; in documents only, for generated code quotes such addresses in its comments.
_URL_PASSWORD = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"']{0,256}:[^\s/@\"'$]{1,256}@")
# Longer than any form or literal that is looked for; windows overlap by this much so that nothing hides across their seam.
_OVERLAP = 4096
_SHORTEST = 8  # literal values below this many bytes would match everywhere

_NAMES = {
    "token": "hub token file",
    "stored_tokens": "hub token file",
    ".netrc": "netrc credentials",
    "_netrc": "netrc credentials",
    ".git-credentials": "git credentials",
    ".pypirc": "package index credentials",
    ".npmrc": "package index credentials",
    ".dockercfg": "registry credentials",
    "application_default_credentials.json": "cloud credentials",
    "kaggle.json": "service credentials",
    ".env": "variables of an environment",
    "id_rsa": "private key",
    "id_ecdsa": "private key",
    "id_ed25519": "private key",
}
_TAILS = {
    ".docker/config.json": "registry credentials",
    ".aws/credentials": "cloud credentials",
    "gcloud/credentials.db": "cloud credentials",
    "gcloud/access_tokens.db": "cloud credentials",
    ".git/config": "git configuration, which may hold credentials",
    "gh/hosts.yml": "git credentials",
    ".kube/config": "cluster credentials",
    "containers/auth.json": "registry credentials",
}
_SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|KEY|APIKEY|CREDENTIALS?|AUTH)(?:_|$)")
_NOT_SECRET = ("*_PATH", "*_FILE", "*_DIR", "*_TTL", "*_SOCK", "GPG_KEY")  # the last: the public key that python images name


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables whose name says secret, with values long enough to look for (8 bytes): what `Scan` takes as literals."""
    return {
        name: value
        for name, value in environ.items()
        if _SECRET_NAME.search(name.upper()) and not any(fnmatchcase(name.upper(), p) for p in _NOT_SECRET) and len(value) >= _SHORTEST
    }


def by_name(path: str) -> str:
    """What kind of secret a file of this name holds, "" for none; `path` is relative with '/' separators."""
    parts = path.split("/")
    return _TAILS.get("/".join(parts[-2:]), "") or _NAMES.get(parts[-1], "")


@dataclass
class Scan:
    """Looks through one file, fed in pieces. `literals` maps a name for messages to the value that must not appear."""

    literals: Mapping[str, str]
    found: set[str] = field(default_factory=set)
    _tail: bytes = b""
    _text: bool | None = None

    def feed(self, chunk: bytes, *, last: bool = False) -> None:
        """Search `chunk` and the seam to the one before."""
        if self._text is None:
            self._text = b"\0" not in chunk[:8192]  # the rule of grep and git
        window = self._tail + chunk
        for name, value in self.literals.items():
            needle = value.encode("utf-8", "surrogateescape")
            if len(needle) >= _SHORTEST and needle in window:
                self.found.add(f"the value of {name}")
        if self._text:
            self._forms(window, first=not self._tail, last=last)
        self._tail = window[-_OVERLAP:]

    def _forms(self, window: bytes, *, first: bool, last: bool) -> None:
        for mark, form, name in _FORMS:
            if mark not in window:
                continue
            for match in form.finditer(window):
                # A match that touches a seam is judged in the other window, where it has its neighbours.
                if (match.start() or first) and (match.end() < len(window) or last):
                    self.found.add(name)
                    break


def mask(text: str, literals: Mapping[str, str]) -> str:
    """`text` with every literal value replaced, for messages that quote names or link targets."""
    for value in sorted(literals.values(), key=len, reverse=True):
        if len(value) >= _SHORTEST:
            text = text.replace(value, "***")
    return text


def check_documents(documents: Iterable[tuple[str, bytes]], literals: Mapping[str, str]) -> None:
    """Refuse documents (manifest, config, labels, proof: name and bytes) that hold a secret. Raises ArtifactError."""
    for name, data in documents:
        scan = Scan(literals)
        scan.feed(data, last=True)
        if _URL_PASSWORD.search(data):
            scan.found.add("a password in an address")
        if scan.found:
            what = ", ".join(sorted(scan.found))
            raise ArtifactError(
                f"{name} holds a secret: {what}",
                code="secret-found",
                found=what,
                expected="no secret in any blob",
                remedy="take the value out of the arguments, profile or environment that reach the image",
            )
