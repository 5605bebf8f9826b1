"""The error classes: one exit code each, and a document that a machine can read."""

from __future__ import annotations

import json
import signal

import pytest

from baker import errors


def test_each_class_has_its_own_exit_code() -> None:
    classes = [errors.UsageError, errors.MachineError, errors.WarmupError, errors.ArtifactError, errors.RegistryError]
    assert [kind.exit_code for kind in classes] == [2, 3, 4, 5, 6]
    assert errors.BakerError.exit_code == 1
    assert errors.Interrupted(signal.SIGINT, "x").exit_code == 130
    assert errors.Interrupted(signal.SIGTERM, "x").exit_code == 143
    assert errors.Interrupted(signal.SIGTERM, "x").retryable


@pytest.mark.parametrize(("kind", "code"), [(errors.UsageError, "usage"), (errors.MachineError, "machine"), (errors.ArtifactError, "artifact")])
def test_documents_hold_everything(kind: type[errors.BakerError], code: str) -> None:
    assert kind("text").code == code
    error = kind("text", remedy="r", found="f", expected="e", code="c", needed=3)
    document = json.loads(json.dumps(error.document()))
    assert document == {
        "code": "c",
        "exit": kind.exit_code,
        "message": "text",
        "found": "f",
        "expected": "e",
        "remedy": "r",
        "retryable": False,
        "details": {"needed": 3},
    }
    assert str(error) == "text"
