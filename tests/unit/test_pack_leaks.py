from __future__ import annotations

import pytest

from baker.errors import ArtifactError
from baker.pack import leaks

_FORTY = "aB3dE6gH9j" * 4
LEAKS = {
    "hf": "hf" + "_" + _FORTY[:34],
    "aws": "AKIA" + "Q3Z7" * 4,
    "github": "gh" + "p_" + _FORTY,
    "github-pat": "github" + "_pat_" + _FORTY,
    "gitlab": "glpat" + "-" + _FORTY[:20],
    "slack": "xox" + "b-" + _FORTY[:30],
    "openai": "sk" + "-" + _FORTY,
    "openai-project": "sk" + "-proj-" + _FORTY,
    "nvidia": "nvapi" + "-" + _FORTY,
    "pem": "-----BEGIN EC " + "PRIVATE KEY-----",
}
HARMLESS = (
    "hf_config_for_models",
    "hf_",
    "task-" + _FORTY,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_short",
    "sk-learn",
    "-----BEGIN CERTIFICATE-----",
    "my_hf_" + _FORTY,
)


def _scan(data: bytes, literals: dict[str, str] | None = None, step: int = 1 << 20) -> set[str]:
    scan = leaks.Scan(literals or {})
    for at in range(0, len(data), step):
        scan.feed(data[at : at + step], last=at + step >= len(data))
    return scan.found


@pytest.mark.parametrize("name", LEAKS)
def test_a_token_in_text_is_found(name: str) -> None:
    found = _scan(f"x = '{LEAKS[name]}'\n".encode())
    assert len(found) == 1
    assert LEAKS[name] not in str(found)


@pytest.mark.parametrize("text", HARMLESS)
def test_lookalikes_are_not(text: str) -> None:
    assert _scan(f"x = '{text}'\n".encode()) == set()


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("shift", [0, 7, 20, 40, 60])
def test_a_token_across_the_seam_of_two_chunks_is_found(name: str, shift: int) -> None:
    data = b"a" * 8180 + b" " + b"b" * shift + b" " + LEAKS[name].encode() + b" " + b"c" * 9000
    assert len(_scan(data, step=8192 + 50)) == 1


def test_binary_files_are_searched_for_literals_only() -> None:
    data = b"\x7fELF\0" + LEAKS["pem"].encode() + b"\0" + b"the-password-1"
    assert _scan(data) == set()
    assert _scan(data, {"PW": "the-password-1"}) == {"the value of PW"}


def test_short_literals_would_match_everywhere() -> None:
    assert _scan(b"true and 1234567", {"A": "1234567", "B": "true"}) == set()


def test_secrets_of_an_environment() -> None:
    environ = {
        "HF_TOKEN": "hf_TESTSECRET",
        "HUGGING_FACE_HUB_TOKEN": "hf_TESTSECRET2",
        "AWS_SECRET_ACCESS_KEY": "abcdefgh/1",
        "REGISTRY_PASSWORD": "registry-pw",
        "VLLM_API_KEY": "server-key-1",
        "TOKENIZERS_PARALLELISM": "false-or-true",
        "HF_TOKEN_PATH": "/home/u/.cache/huggingface/token",
        "PATH": "/usr/bin:/bin",
        "SHORT_KEY": "abc",
    }
    assert set(leaks.from_environment(environ)) == {
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "REGISTRY_PASSWORD",
        "VLLM_API_KEY",
    }


def test_documents_are_checked_too() -> None:
    leaks.check_documents([("config", b'{"Env":["A=1"]}')], {"HF_TOKEN": "hf_TESTSECRET"})
    with pytest.raises(ArtifactError, match="config holds a secret: the value of HF_TOKEN") as caught:
        leaks.check_documents([("config", b'{"Env":["A=hf_TESTSECRET"]}')], {"HF_TOKEN": "hf_TESTSECRET"})
    assert "hf_TESTSECRET" not in str(caught.value.document())


def test_masking_takes_the_longest_value_first() -> None:
    assert leaks.mask("x password-1-long y", {"A": "password-1", "B": "password-1-long"}) == "x *** y"
