"""Hub ids against a hub on loopback, through the real client library: commit, access, refusals, offline cache, downloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker import hub as hubs
from baker.errors import BakerError, UsageError, WarmupError
from baker.hub_access import TOKEN_VARIABLES, Hub
from tests.sim_hub import Fault, Repo, SimHub, running

SECRET = "hf_TESTSECRETtestsecret"
CONFIG = json.dumps({"model_type": "qwen2"}).encode()


@pytest.fixture
def sim() -> Iterator[SimHub]:
    plain = {"config.json": CONFIG, "model.safetensors": b"w" * 64, "pytorch_model.bin": b"p" * 64, "tokenizer.json": b"{}", "tf_model.h5": b"h"}
    with running(
        org__open=Repo(dict(plain), refs={"v1": "b" * 40, "b" * 40: "b" * 40}),
        org__gated=Repo(dict(plain), gated=True, readers=("hf_reader",)),
        org__private=Repo(dict(plain), private=True, readers=("hf_reader",)),
        org__empty=Repo({"README.md": b"x"}),
        org__bare=Repo({"config.json": CONFIG}),
        org__odd=Repo({"config.json": b"[]", "model.safetensors": b"w"}),
        plain=Repo(dict(plain)),
    ) as hub:
        hub.tokens = ("hf_reader", SECRET)
        yield hub


def at(sim: SimHub, cache: Path, **env: str) -> Hub:
    return Hub.from_env({"HF_ENDPOINT": sim.endpoint, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache / "home"), **env})


def refusal(sim: SimHub, cache: Path, model: str, **env: str) -> BakerError:
    with pytest.raises(BakerError) as caught:
        hubs.resolve(model, hub=at(sim, cache, **env))
    text = json.dumps(caught.value.document()) + repr(caught.value) + str(caught.value.__context__)
    assert not any(value in text for name, value in env.items() if name in TOKEN_VARIABLES and value.strip())
    assert caught.value.found
    assert caught.value.expected
    assert caught.value.remedy
    return caught.value


def test_an_id_resolves_to_a_commit_and_its_config_without_weights(sim: SimHub, tmp_path: Path) -> None:
    model = hubs.resolve("org/open", hub=at(sim, tmp_path))
    assert (model.commit, model.served, model.source) == ("a" * 40, "org/open", "org/open")
    assert json.loads((model.path / "config.json").read_bytes())["model_type"] == "qwen2"
    assert model.identity() == {"repo": "org/open", "commit": "a" * 40}
    assert not any("safetensors" in path for _, path, _ in sim.requests)


@pytest.mark.parametrize("name", ["plain", "org/open"])
def test_revisions_and_names_without_owner(sim: SimHub, tmp_path: Path, name: str) -> None:
    assert hubs.resolve(f"{name}@{'a' * 40}", hub=at(sim, tmp_path)).commit == "a" * 40
    if "/" in name:
        assert hubs.resolve(f"{name}@v1", served="/mnt/models", hub=at(sim, tmp_path)).commit == "b" * 40


def test_three_messages_for_gated_and_missing_models(sim: SimHub, tmp_path: Path) -> None:
    """Case O-44."""
    nobody = refusal(sim, tmp_path, "org/gated")
    outsider = refusal(sim, tmp_path, "org/gated", HF_TOKEN=SECRET)
    missing = refusal(sim, tmp_path, "org/none", HF_TOKEN=SECRET)
    assert [e.code for e in (nobody, outsider, missing)] == ["model-needs-token", "model-no-access", "model-missing"]
    assert "HF_TOKEN" in nobody.remedy
    assert "accept its licence" in outsider.remedy
    assert "no such model" in missing.message
    assert {e.exit_code for e in (nobody, outsider, missing)} == {4}
    assert not any(e.retryable for e in (nobody, outsider, missing))


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_blank_token_is_no_token(sim: SimHub, tmp_path: Path, blank: str) -> None:
    assert refusal(sim, tmp_path, "org/private", HF_TOKEN=blank).code == "model-needs-token"
    assert all(not authorization for _, _, authorization in sim.requests)


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN"])
def test_a_token_under_any_name_gives_access(sim: SimHub, tmp_path: Path, name: str) -> None:
    for model in ("org/gated", "org/private"):
        assert hubs.resolve(model, hub=at(sim, tmp_path, **{name: "hf_reader"})).commit == "a" * 40


def test_the_token_file_counts_and_its_path_is_named(sim: SimHub, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/token").write_text("hf_reader\n")
    assert hubs.resolve("org/gated", hub=at(sim, tmp_path)).commit
    (tmp_path / "home/token").write_text(SECRET)
    error = refusal(sim, tmp_path / "other", "org/gated", HF_TOKEN_PATH=str(tmp_path / "home/token"))
    assert str(tmp_path / "home/token") in error.remedy
    assert SECRET not in json.dumps(error.document())


def test_an_unknown_token_is_told_apart(sim: SimHub, tmp_path: Path) -> None:
    error = refusal(sim, tmp_path, "org/open", HF_TOKEN="hf_forgedforged")
    assert error.code == "token-refused"
    assert "HF_TOKEN" in error.message


@pytest.mark.parametrize(
    ("model", "code"),
    [("org/open@nope", "model-no-revision"), ("org/empty", "model-no-config"), ("org/bare", "model-no-weights"), ("org/odd", "model-bad-config")],
)
def test_models_that_cannot_be_served(sim: SimHub, tmp_path: Path, model: str, code: str) -> None:
    if code == "model-bad-config":
        with pytest.raises(WarmupError) as caught:
            hubs.resolve(model, hub=at(sim, tmp_path))
        assert caught.value.code == code
    else:
        assert refusal(sim, tmp_path, model).code == code


def test_dummy_weights_need_no_weights(sim: SimHub, tmp_path: Path) -> None:
    assert hubs.resolve("org/bare", weights="dummy", hub=at(sim, tmp_path)).commit


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (Fault("/api/models", 429, headers={"Retry-After": "17"}), "hub-busy", "in 17 s"),
        (Fault("/api/models", 500), "hub-busy", "later"),
        (Fault("/api/models", 503), "hub-busy", "later"),
    ],
)
def test_busy_is_retryable(sim: SimHub, tmp_path: Path, fault: Fault, code: str, words: str) -> None:
    sim.faults.append(fault)
    error = refusal(sim, tmp_path, "org/open")
    assert (error.code, error.retryable) == (code, True)
    assert words in error.remedy
    sim.faults.clear()
    assert hubs.resolve("org/open", hub=at(sim, tmp_path)).commit


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b'{"sha": 1}', b"null"])
def test_a_proxy_page_instead_of_the_hub(sim: SimHub, tmp_path: Path, body: bytes) -> None:
    sim.faults.append(Fault("/", 200, body=body))
    assert refusal(sim, tmp_path, "org/open").code == "hub-foreign"


def test_nobody_listens(sim: SimHub, tmp_path: Path) -> None:
    sim.endpoint = "http://127.0.0.1:9"
    error = refusal(sim, tmp_path, "org/open")
    assert (error.code, error.retryable) == ("hub-unreachable", True)


def test_offline_uses_the_cache_and_asks_nobody(sim: SimHub, tmp_path: Path) -> None:
    assert refusal(sim, tmp_path, "org/open", HF_HUB_OFFLINE="1").code == "model-not-cached"
    online = hubs.resolve("org/open", hub=at(sim, tmp_path))
    hubs.fetch(online, hub=at(sim, tmp_path))
    before = len(sim.requests)
    for name in ("org/open", f"org/open@{'a' * 40}"):
        offline = hubs.resolve(name, hub=at(sim, tmp_path, HF_HUB_OFFLINE="1"))
        assert offline == online
        assert hubs.fetch(offline, hub=at(sim, tmp_path, TRANSFORMERS_OFFLINE="true")) == online.path
    assert len(sim.requests) == before


def test_locate_points_into_the_cache(sim: SimHub, tmp_path: Path) -> None:
    model = hubs.resolve("org/open", hub=at(sim, tmp_path))
    assert hubs.locate(model.identity(), "org/open", "org/open", hub=at(sim, tmp_path)) == model


def test_offline_with_half_a_snapshot(sim: SimHub, tmp_path: Path) -> None:
    model = hubs.resolve("org/open", hub=at(sim, tmp_path))
    with pytest.raises(WarmupError) as caught:
        hubs.fetch(model, hub=at(sim, tmp_path, HF_HUB_OFFLINE="1"))
    assert caught.value.code in ("model-no-weights", "model-not-cached")


@pytest.mark.parametrize(
    ("weights", "there", "absent"), [("real", "model.safetensors", "pytorch_model.bin"), ("dummy", "config.json", "model.safetensors")]
)
def test_fetch_takes_one_weight_format_or_none(sim: SimHub, tmp_path: Path, weights: Any, there: str, absent: str) -> None:
    path = hubs.fetch(hubs.resolve("org/open", hub=at(sim, tmp_path)), weights, hub=at(sim, tmp_path))
    names = {file.name for file in path.iterdir()}
    assert {there, "tokenizer.json"} <= names
    assert not {absent, "tf_model.h5"} & names


def test_fetch_says_how_much_space_is_missing(sim: SimHub, tmp_path: Path) -> None:
    model = hubs.resolve("org/open", hub=at(sim, tmp_path))
    info = {"id": "org/open", "sha": "a" * 40, "siblings": [{"rfilename": "model.safetensors", "size": 1 << 60}]}
    sim.faults.append(Fault("/api/models", 200, body=json.dumps(info).encode()))
    with pytest.raises(BakerError) as caught:
        hubs.fetch(model, hub=at(sim, tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("no-space", 3)
    assert caught.value.details["needed"] == 1 << 60
    assert 0 < caught.value.details["free"] < 1 << 60


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://host", "http://", "https:///x"])
def test_an_endpoint_that_is_no_url(endpoint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Hub.from_env({"HF_ENDPOINT": endpoint})
    assert caught.value.code == "bad-endpoint"


def test_cache_and_defaults_follow_the_usual_variables(tmp_path: Path) -> None:
    assert Hub.from_env({"HF_HOME": "/h"}).cache == Path("/h/hub")
    assert Hub.from_env({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}).cache == Path("/c")
    assert Hub.from_env({"XDG_CACHE_HOME": "/x"}).cache == Path("/x/huggingface/hub")
    assert Hub.from_env({}).endpoint == "https://huggingface.co"
    assert SECRET not in repr(Hub.from_env({"HF_TOKEN": SECRET}))
