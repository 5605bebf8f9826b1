"""What a plan must not hold, told before anything is started: odd roots and set names, text that JSON cannot hold, owned variables, secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baker import caches
from baker.errors import UsageError
from baker.inside.manifest import canonical
from baker.pack import leaks
from baker.pack.image import ancestors

_SET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # a path component and a tag (OCI distribution specification)
# Each start has its own (design 5.6: HOME and XDG are never pinned), or they decide how start itself behaves in production.
_OWNED = ("HOME", "PATH", "TMPDIR")
_OWNED_PREFIXES = ("XDG_", "BAKER_")
# Directories that nobody watches: a proof would find there what the warm-up left, and production would not (case O-05).
_UNWATCHED = re.compile(r".*_CACHE_(?:DIR|ROOT|PATH)|TRITON_HOME|TORCH_EXTENSIONS_DIR|FLASHINFER_WORKSPACE_BASE")


def root(text: str) -> str:
    """The root as a normalised path. Raises UsageError."""
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or str(path) == "/":
        raise UsageError(
            "--root must be an absolute directory below /", code="bad-root", found=text, expected="like /opt/baker", remedy="pass an absolute path"
        )
    ancestors(str(path))
    return str(path)


def set_name(text: str) -> str:
    """The name of a set; "" for the default one. Raises UsageError."""
    if text and not _SET.fullmatch(text):
        raise UsageError(
            f"not usable as the name of a set: {text!r}",
            code="bad-set",
            found=text,
            expected="letters, digits, '.', '_', '-'; up to 128, not starting with '.' or '-' (it is a directory and a tag)",
            remedy="pass a name like cpu-prefill",
        )
    return text


def variables(env: Mapping[str, str]) -> None:
    """Refuse variables of a profile that baker itself sets. Raises UsageError."""
    pinned = {name for kind in caches.ALL for name in kind.pins("/")}
    owned = sorted(name for name in env if name in _OWNED or name in pinned or name.startswith(_OWNED_PREFIXES) or _UNWATCHED.fullmatch(name))
    if owned:
        raise UsageError(
            f"the profile sets {', '.join(owned)}, which baker sets or keeps in its own places",
            code="owned-variable",
            found=", ".join(owned),
            expected="variables of the server",
            remedy="take them out of the profile's env; start reads BAKER_* from the pod that runs the image",
        )


def document(content: Mapping[str, Any]) -> None:
    """Raise UsageError for text that no JSON document or process can hold, ArtifactError for a secret: the plan stands in the image."""
    for name, value in content.items():
        try:
            data = canonical({name: value})
            data.decode()
        except UnicodeError as error:
            raise UsageError(
                f"the plan's {name} is not UTF-8",
                code="not-utf8",
                found=ascii(value)[:300],
                expected="paths, arguments and variables in UTF-8",
                remedy="rename the path, or write the argument in UTF-8",
            ) from error
        if _holds_nul(value):
            raise UsageError(
                f"the plan's {name} holds a NUL character",
                code="not-utf8",
                found=ascii(value)[:300],
                expected="text that a process can take",
                remedy="take it out of the profile",
            )
        leaks.check_documents([(f"the plan's {name}", data)], leaks.from_environment(os.environ))


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_holds_nul(item) for item in value)
