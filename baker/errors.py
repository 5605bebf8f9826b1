"""One error root; each class is one exit code of the command line (docs/artifact-spec.md, "Exit codes").

Every error says what was found, what was expected and what to do. `retryable` tells a machine whether the very same command may succeed later.
"""

from __future__ import annotations

from typing import Any


class BakerError(Exception):
    """Root of every error that baker raises on purpose. A bare BakerError is our own bug (exit 1)."""

    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, remedy: str = "", found: str = "", expected: str = "", code: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.found = found
        self.expected = expected
        self.code = code or type(self).__name__.removesuffix("Error").lower()
        self.details = details

    def document(self) -> dict[str, Any]:
        """The error as the object that `--json` prints: code, exit, message, found, expected, remedy, retryable, details."""
        return {
            "code": self.code,
            "exit": self.exit_code,
            "message": self.message,
            "found": self.found,
            "expected": self.expected,
            "remedy": self.remedy,
            "retryable": self.retryable,
            "details": self.details,
        }


class UsageError(BakerError):
    """The command line or a profile is wrong."""

    exit_code = 2


class MachineError(BakerError):
    """This machine lacks something: GPU, engine, space, permission, compiler, or the root is in use."""

    exit_code = 3


class WarmupError(BakerError):
    """The server died, refused a request, or did not get ready in time; or the model cannot be had."""

    exit_code = 4


class ArtifactError(BakerError):
    """The caches, the image or its proof are not whole: partial, foreign, damaged, secret found, no strategy proved."""

    exit_code = 5


class RegistryError(BakerError):
    """The registry refused, was unreachable, or limits what was asked."""

    exit_code = 6


class Interrupted(BakerError):  # noqa: N818 - a signal is not a fault
    """TERM, INT or HUP arrived; `exit_code` is 128 + signal number."""

    retryable = True

    def __init__(self, signum: int, message: str, **details: Any) -> None:
        super().__init__(message, code="interrupted", remedy="run the same command again: it goes on from there", **details)
        self.exit_code = 128 + signum
