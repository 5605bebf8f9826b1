"""Access to the model hub: where it is, with which token, and what each of its refusals means to the person who asked.

No text of the hub client's own errors is passed on: it may hold request headers, and it rarely says what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from baker.errors import BakerError, MachineError, UsageError, WarmupError

# Legacy names stand after the current one; the first that holds more than blanks wins.
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN")
_TRUE = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True, slots=True)
class Hub:
    """Where models come from: endpoint, cache directory, whether the network may be used, and whether a token is there."""

    endpoint: str
    cache: Path
    offline: bool
    token: str = ""
    token_from: str = ""  # the variable or file that held it

    def __repr__(self) -> str:
        """Without the token, so that no traceback can hold it."""
        return f"Hub(endpoint={self.endpoint!r}, cache={str(self.cache)!r}, offline={self.offline}, token={'set' if self.token else 'none'})"

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Hub:
        """Read HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_CACHE, HF_HOME and the token variables. Raises UsageError for an endpoint that is no URL."""
        env = os.environ if env is None else env
        endpoint = env.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("HF_ENDPOINT is no web address", code="bad-endpoint", found=endpoint, expected="https://HOST[/PATH]")
        home = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
        cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or home / "hub"
        offline = any(env.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        return cls(endpoint, Path(cache).expanduser().absolute(), offline, *_token(env, home))


def _token(env: Mapping[str, str], home: Path) -> tuple[str, str]:
    for name in TOKEN_VARIABLES:
        if value := env.get(name, "").strip():
            return value, name
    file = Path(env.get("HF_TOKEN_PATH") or home / "token").expanduser()
    try:
        return file.read_text().strip(), str(file)
    except (OSError, UnicodeDecodeError):
        return "", ""  # no token file is the usual case; a refused request says what is missing


@contextmanager
def explained(hub: Hub, name: str, revision: str) -> Iterator[None]:
    """Turn every failure of the hub's client into WarmupError (refused, unreachable, not cached) or MachineError (cache not writable, disk full)."""
    from huggingface_hub.errors import FileMetadataError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    # Whatever HTTP library the client stands on (requests, httpx, ...): the root of its errors is a base of HfHubHTTPError.
    transport: tuple[type[Exception], ...] = (*(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)), OSError)
    try:
        yield
    except HfHubHTTPError as error:
        raise _refused(hub, name, revision, error) from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, FileMetadataError) as error:
        cause = error.__cause__
        raise (_refused(hub, name, revision, cause) if isinstance(cause, HfHubHTTPError) else _unreachable(hub, name, cause or error)) from None
    except transport as error:
        raise (_disk(hub, error) or _unreachable(hub, name, error)) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # a proxy's web page, or JSON of another shape
        raise WarmupError(
            f"{hub.endpoint} does not answer like a model hub",
            code="hub-foreign",
            found=type(error).__name__,
            expected="the hub's JSON",
            remedy="check HF_ENDPOINT and the proxy in front of it",
        ) from None


def _disk(hub: Hub, error: BaseException) -> MachineError | None:
    number = getattr(error, "errno", None)
    if number not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
        return None
    full = number in (errno.ENOSPC, errno.EDQUOT)
    return MachineError(
        f"cannot write to the model cache {hub.cache}: {os.strerror(number)}",
        code="no-space" if full else "cache-not-writable",
        found=str(getattr(error, "filename", None) or hub.cache),
        expected="a directory with space" if full else "a directory that this user may write",
        remedy="free some space, or point HF_HUB_CACHE elsewhere" if full else "point HF_HUB_CACHE at a directory of your own",
    )


def _unreachable(hub: Hub, name: str, error: BaseException) -> BakerError:
    if hub.offline:
        return WarmupError(
            f"model {name} is not whole in the cache, and the hub may not be asked",
            code="model-not-cached",
            found=f"HF_HUB_OFFLINE is set; files are missing under {hub.cache}",
            expected="a complete snapshot",
            remedy="unset HF_HUB_OFFLINE, or fill the cache where the network is and point HF_HUB_CACHE at it",
        )
    return _retryable(
        WarmupError(
            f"the hub {hub.endpoint} cannot be reached for model {name}",
            code="hub-unreachable",
            found=type(error).__name__,
            expected="an answer over HTTP",
            remedy="check network, proxy and HF_ENDPOINT and try again; HF_HUB_OFFLINE=1 uses what the cache holds",
        )
    )


def _retryable(error: WarmupError) -> WarmupError:
    error.retryable = True
    return error


def _refused(hub: Hub, name: str, revision: str, error: Any) -> WarmupError:
    from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RevisionNotFoundError

    status = int(getattr(error.response, "status_code", 0))
    page = f"{hub.endpoint}/{name}"
    if status == 429 or status >= 500:
        return _busy(hub, name, status, error.response.headers.get("Retry-After", ""))
    if isinstance(error, RevisionNotFoundError):
        return WarmupError(
            f"model {name} has no revision {revision!r}",
            code="model-no-revision",
            found=revision,
            expected="a branch, a tag or a full commit",
            remedy=f"see {page}/commits/main",
        )
    if isinstance(error, RemoteEntryNotFoundError):
        return WarmupError(
            f"model {name} holds no config.json at {revision!r}",
            code="model-no-config",
            found="a repository without config.json",
            expected="a model in the layout of the transformers library",
            remedy=f"see {page}/tree/main",
        )
    if isinstance(error, GatedRepoError) and hub.token:
        return _no_access(name, page, status, f"accept its licence at {page} with the account of the token in {hub.token_from}")
    return _unknown(hub, name, page, status)


def _unknown(hub: Hub, name: str, page: str, status: int) -> WarmupError:
    """401, 403 and 404 mean different things with and without a token: without one the hub hides private models behind 401."""
    if not hub.token and status in (401, 403):
        return WarmupError(
            f"model {name} is gated, private or misspelt, and no token was given",
            code="model-needs-token",
            found=f"HTTP {status} without a token",
            expected="a token with read access in HF_TOKEN",
            remedy=f"look at {page}; set HF_TOKEN (make one at {hub.endpoint}/settings/tokens)",
        )
    if status == 404:
        return WarmupError(
            f"no such model: {name}",
            code="model-missing",
            found="HTTP 404",
            expected="ORG/NAME as the hub spells it" + ("" if hub.token else "; a private model needs a token in HF_TOKEN"),
            remedy=f"search at {hub.endpoint}/models",
        )
    if status == 401:
        return WarmupError(
            f"the hub refused the token in {hub.token_from}",
            code="token-refused",
            found="HTTP 401 with a token",
            expected="a valid token with read access",
            remedy=f"make a new one at {hub.endpoint}/settings/tokens",
        )
    if status == 403:
        return _no_access(name, page, status, f"give the token in {hub.token_from} read access, or use another; see {page}")
    return WarmupError(
        f"the hub answered HTTP {status} for model {name}", code="hub-refused", found=f"HTTP {status}", expected="HTTP 200", remedy=f"see {page}"
    )


def _no_access(name: str, page: str, status: int, remedy: str) -> WarmupError:
    return WarmupError(
        f"the token has no access to model {name}", code="model-no-access", found=f"HTTP {status} with a token", expected="access", remedy=remedy
    )


def _busy(hub: Hub, name: str, status: int, after: str) -> WarmupError:
    wait = f" in {after} s" if after.isdigit() else " later"
    return _retryable(
        WarmupError(
            f"the hub {hub.endpoint} is busy or broken: HTTP {status} for model {name}",
            code="hub-busy",
            found=f"HTTP {status}",
            expected="HTTP 200",
            remedy=f"run the same command again{wait}" + ("" if hub.token else "; a token in HF_TOKEN raises the limit" if status == 429 else ""),
        )
    )
