"""Cases O-49, O-50 and O-53: values of secret variables and arguments are in nothing that a build leaves or prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.pack.reading import LayerReader
from baker.steps.images import layer_paths
from tests.pipeline.bakes import LOADS, Done, Farm, Site, copy_runtime
from tests.pipeline.conftest import Sites

SECRETS = {
    "HF_TOKEN": "hf_TESTSECRETtestsecret0123456789abcd",
    "HUGGING_FACE_HUB_TOKEN": "hf_OTHERSECRETtestsecret0123456789ab",
    "AWS_SECRET_ACCESS_KEY": "TESTaws/SECRET+0123456789abcdefghij",
    "VLLM_API_KEY": "sk-TESTservernKEY0123456789abcdef",
    "REGISTRY_PASSWORD": "TESTpass-0123456789",
}
ARGUMENT = "sk-ARGUMENTkey0123456789abcdefgh"
TOKEN = "hf_InsideACachedFile0123456789abcdef"
Story = tuple[Site, Done]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Farm]:
    """A server that echoes its environment and arguments: once it works, once it dies with a secret in its error."""

    def build(name: str, script: dict[str, Any]) -> Story:
        place = Site(tmp_path_factory.mktemp(name), python, {**LOADS, "print_env": True, **script})
        serve = ("--max-model-len", "4224", "--api-key", ARGUMENT)
        return place, place.child("--json", "-v", "--no-prove", serve=serve, env={**SECRETS, "XDG_STATE_HOME": str(place.directory / "state")})

    error = f"RuntimeError: 401 for token {SECRETS['HF_TOKEN']} and key {SECRETS['VLLM_API_KEY']}"
    farm = Farm({"works": lambda: build("works", {}), "dies": lambda: build("dies", {"die": {"when": "start", "first": error}})})
    yield farm
    farm.close()


def _holders(directory: Path) -> list[str]:
    """Files and layer members that hold one of the values; the model's script is the test's own."""
    values = [value.encode() for value in (*SECRETS.values(), ARGUMENT)]
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "sim.json":
            data = path.read_bytes()
            found += [f"{path}: {value[:4]!r}" for value in values if value in data]
    return found


def test_no_value_is_in_any_file_blob_or_stream(stories: Farm) -> None:
    site, done = stories["works"]
    assert done.code == 0, done.text
    log = (site.work / "logs" / "aot-round-1.log").read_text()
    assert "env:" in log
    assert "***" in log
    assert _holders(site.directory) == []
    assert not [value for value in (*SECRETS.values(), ARGUMENT) if value in done.text]
    for path in layer_paths(Oci().read(done.document["reference"])):
        with LayerReader(path) as reader:
            for info in reader:
                content = b"".join(reader.content(info)) if info.isfile() else b""
                assert not [name for name, value in SECRETS.items() if value.encode() in content], info.name


def test_no_value_is_in_the_message_of_a_failure(stories: Farm) -> None:
    site, done = stories["dies"]
    assert done.code == 4, done.text
    assert "401 for token ***" in done.error["found"]
    assert _holders(site.directory) == []
    assert not [value for value in (*SECRETS.values(), ARGUMENT) if value in done.text]


@pytest.mark.parametrize(
    ("path", "content", "kind"), [("token", TOKEN, "hub token file"), ("ab/generated.py", f"T = {TOKEN!r}\n", "Hugging Face token")]
)
def test_a_token_in_the_tree_stops_the_bake(site: Sites, python: str, tmp_path: Path, path: str, content: str, kind: str) -> None:
    """O-50. The file is put where a server would have written it."""
    place = site(LOADS, runtime=copy_runtime(python, tmp_path / "rt"))
    debris = place.faults.with_name("debris.py")
    debris.write_text(debris.read_text() + _writer(path, content))
    done = place.build("--json", "--no-prove")
    assert done.code == 5, done.text
    assert done.error["code"] == "secret-found"
    assert path in done.error["message"]
    assert kind in done.error["message"]
    assert TOKEN not in done.text
    assert not place.image.exists()
    assert json.loads((place.work / "strategies" / "aot" / "tree.json").read_text())["kinds"]


def _writer(path: str, content: str) -> str:
    """Code for the end of the simulator's debris.py: one more file at each start that has none."""
    return f"""
_files = files


def files(script, cache, artifact):
    _files(script, cache, artifact)
    target = cache / {path!r}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text({content!r})
"""
