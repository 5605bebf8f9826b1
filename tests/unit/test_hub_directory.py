"""Model directories: what identifies them, and a clear error for each way in which one can be broken."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from baker import hub as hubs
from baker.errors import UsageError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "qwen2"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"w" * 100)
    return path


def code(model: Path | str) -> str:
    with pytest.raises(UsageError) as caught:
        hubs.resolve(str(model))
    assert caught.value.found
    assert caught.value.expected
    assert caught.value.exit_code == 2
    return caught.value.code


def test_files_are_hashed_and_weights_told_by_size(model: Path) -> None:
    resolved = hubs.resolve(str(model))
    assert resolved.files == {
        "config.json": hashlib.sha256(b'{"model_type": "qwen2"}').hexdigest(),
        "model.safetensors": 100,
        "tokenizer.json": hashlib.sha256(b"{}").hexdigest(),
    }
    assert (resolved.served, resolved.commit, resolved.path) == (str(model), "", model)
    assert hubs.fetch(resolved) == model


def test_hidden_files_and_directories_do_not_count(model: Path) -> None:
    before = hubs.resolve(str(model))
    (model / ".cache/huggingface").mkdir(parents=True)
    (model / ".cache/huggingface/x.lock").write_text("1")
    (model / ".gitattributes").write_text("x")
    assert hubs.resolve(str(model)) == before


def test_the_identity_changes_with_content_and_not_with_the_place(model: Path) -> None:
    one = hubs.resolve(str(model), served="/mnt/models").identity()
    moved = model.rename(model.parent / "moved")
    assert hubs.resolve(str(moved), served="/mnt/models").identity() == one
    (moved / "tokenizer.json").write_text("[]")
    assert hubs.resolve(str(moved), served="/mnt/models").identity() != one


def test_relative_home_and_dotted_paths(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    monkeypatch.setenv("HOME", str(model.parent))
    assert {hubs.resolve(text).served for text in ("model", "./model", "model/", "~/model", "../" + model.parent.name + "/model")} == {str(model)}


def test_file_links_are_resolved_and_the_given_path_stays(model: Path) -> None:
    blob = model.parent / "blob"
    (model / "model.safetensors").rename(blob)
    (model / "model.safetensors").symlink_to(blob)
    link = model.parent / "link"
    link.symlink_to(model)
    resolved = hubs.resolve(str(link))
    assert resolved.files["model.safetensors"] == 100
    assert resolved.served == str(link)


def test_a_broken_link_is_named(model: Path) -> None:
    (model / "merges.txt").symlink_to("../blobs/gone")
    with pytest.raises(UsageError, match=r"merges\.txt .*broken link to \.\./blobs/gone"):
        hubs.resolve(str(model))


def test_a_directory_link_in_a_circle_ends(model: Path) -> None:
    (model / "again").symlink_to(model)
    assert set(hubs.resolve(str(model)).files) == {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.timeout(10)
def test_a_pipe_is_named_and_never_opened(model: Path) -> None:
    os.mkfifo(model / "generation_config.json")
    with pytest.raises(UsageError, match=r"generation_config\.json"):
        hubs.resolve(str(model))


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "\x00", "null", "[" * 100_000])
def test_a_config_that_is_no_object(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    assert code(model) == "model-bad-config"


def test_no_config_no_directory_a_file(model: Path, tmp_path: Path) -> None:
    assert code(model / "config.json/") == "model-dir-missing"
    assert code(tmp_path / "gone") == "model-dir-missing"
    (model / "config.json").unlink()
    assert code(model) == "model-no-config"


def test_real_weights_wanted_but_none_there(model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(UsageError) as caught:
        hubs.resolve(str(model))
    assert "--weights dummy" in caught.value.remedy
    assert hubs.resolve(str(model), weights="dummy").files


def test_an_empty_weight_file(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"")
    assert code(model) == "model-no-weights"


def test_a_missing_shard_is_named(model: Path) -> None:
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    with pytest.raises(UsageError) as caught:
        hubs.resolve(str(model))
    assert "model-00002-of-00002.safetensors" in caught.value.found
    for text in ("[]", "{", '{"weight_map": []}', '{"weight_map": null}'):
        index.write_text(text)
        assert code(model) == "model-no-weights"
    (model / "pytorch_model.bin.index.json").write_text("{")  # an index of a format that is not here does not matter
    index.unlink()
    assert hubs.resolve(str(model)).files


@pytest.mark.parametrize(
    "text", ["", "a/b/c", "org/na me", "org/--x", "org/x..y", "org/x.git", "@v1", "org/x@", "org/x@../..", "x" * 97, "org/", "org/é"]
)
def test_malformed_ids(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert code(text) in ("bad-model", "model-dir-missing")


def test_locate_finds_the_baked_directory_again_and_refuses_another(model: Path, tmp_path: Path) -> None:
    baked = hubs.resolve(str(model), served="/mnt/models")
    identity = json.loads(json.dumps(baked.identity()))
    assert hubs.locate(identity, str(model), "/mnt/models") == baked
    moved = model.rename(tmp_path / "moved")
    assert hubs.locate(identity, str(model), "/mnt/models", moved).path == moved
    with pytest.raises(UsageError) as caught:
        hubs.locate(identity, str(model), "/mnt/models")
    assert caught.value.code == "model-dir-missing"
    (moved / "tokenizer.json").write_text("[]")
    (moved / "extra.json").write_text("[]")
    with pytest.raises(UsageError) as caught:
        hubs.locate(identity, str(model), "/mnt/models", moved)
    assert (caught.value.code, caught.value.found) == ("model-differs", "extra.json, tokenizer.json")
