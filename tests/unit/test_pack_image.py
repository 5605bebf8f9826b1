from __future__ import annotations

import pytest

from baker.errors import ArtifactError, MachineError, UsageError
from baker.pack import image, oci
from baker.pack.layer import Layer
from tests.bad import sound


def test_layers_are_ordered_by_stability_and_end_with_the_manifest(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp = tmp_path_factory.mktemp("i")
    tree = sound.write(tmp / "t")
    files = sound.look(tree).files
    trees = [image.KindTree("inductor", 40, tree, files), image.KindTree("bytecode", 10, tree, files), image.KindTree("vllm", 90, tree, files)]
    packer = image.Packer("/opt/baker", tmp / "o", 0)
    kinds = [layer.kind for layer in packer.layers("cpu", trees, b"PK", {}, b"{}")]
    assert kinds == ["bytecode", "inductor", "vllm", "start", "manifest"]


def test_files_for_people_get_a_layer_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp = tmp_path_factory.mktemp("i")
    tree = sound.write(tmp / "t")
    files = sound.look(tree).files
    packer = image.Packer("/opt/baker", tmp / "o", 0)
    (whole,) = packer.kind_layers("cpu", [image.KindTree("triton", 20, tree, files)])
    first, second = packer.kind_layers("cpu", [image.KindTree("triton", 20, tree, files, (files[0].path,))])
    assert (first.part, second.part, second.files) == ("", "debug", 1)
    assert first.files + second.files == whole.files
    assert oci.layer_descriptor(second)["annotations"] == {oci.KIND: "triton", oci.SET: "cpu", oci.PART: "debug"}
    assert oci.PART not in oci.layer_descriptor(first)["annotations"]


def test_a_kind_layer_does_not_depend_on_the_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp = tmp_path_factory.mktemp("i")
    tree = sound.write(tmp / "t")
    kind = image.KindTree("inductor", 40, tree, sound.look(tree).files)
    packer = image.Packer("/opt/baker", tmp / "o", 0)
    whole = packer.layers("cpu", [kind], b"PK", {"vllm": b"1"}, b'{"other":1}')
    assert packer.kind_layer("cpu", kind).digest == whole[0].digest
    existing = image.Packer("/opt/baker", tmp / "o", 0, existing={"opt"})
    assert existing.kind_layer("cpu", kind).digest != whole[0].digest


@pytest.mark.parametrize("root", ["", "relative", "/", "/a//b", "/a/../b", "/a/", "/a:b", "/a\0b"])
def test_a_bad_root_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="not usable as root"):
        image.ancestors(root)


def test_ancestors_of_a_root() -> None:
    assert image.ancestors("/opt/baker") == ("opt", "opt/baker")


def test_path_gets_the_shims_first_once() -> None:
    assert image.environment([], "/opt/baker", {"A": "1"}, "sha256:x") == {
        "A": "1",
        "PATH": f"/opt/baker/bin:{image.DEFAULT_PATH}",
        "BAKER_MANIFEST_DIGEST": "sha256:x",
    }
    again = image.environment(["PATH=/opt/baker/bin:/usr/bin", "B=2"], "/opt/baker", {}, "sha256:x")
    assert again["PATH"] == "/opt/baker/bin:/usr/bin"


def test_entrypoint_is_isolated() -> None:
    assert image.entrypoint("/py", "/r", ["vllm"]) == ("/py", "-I", "-S", "/r/start", "--", "vllm")


@pytest.mark.parametrize(
    ("environ", "base", "expected"), [({}, 0, 0), ({}, 5, 5), ({"SOURCE_DATE_EPOCH": "9"}, 5, 9), ({"SOURCE_DATE_EPOCH": ""}, 5, 5)]
)
def test_creation_time(environ: dict[str, str], base: int, expected: int) -> None:
    assert image.creation_time(environ, base) == expected


@pytest.mark.parametrize("text", ["now", "-1", "1.5", "٣", "999999999999999"])
def test_a_bad_source_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        image.creation_time({"SOURCE_DATE_EPOCH": text})


def test_labels_are_text() -> None:
    found = image.labels(
        root="/r",
        plan_id="p",
        set_name="s",
        arch="sm_90",
        product="NVIDIA H200",
        kinds=["a", "b"],
        versions={"z": "1", "a": "2"},
        manifest_digest="d",
    )
    assert found[image.LABEL_KINDS] == "a,b"
    assert found[image.LABEL_VERSIONS] == '{"a":"2","z":"1"}'
    assert found[image.LABEL_PRODUCT] == "NVIDIA H200"
    assert image.LABEL_UNPROVEN not in found
    assert all(isinstance(v, str) for v in found.values())


BASE = {
    "architecture": "amd64",
    "os": "linux",
    "container": "abc",
    "container_config": {"Hostname": "builder"},
    "docker_version": "20.10",
    "config": {
        "Env": ["PATH=/bin", "KEEP=1", "OLD=a"],
        "User": "2000",
        "Volumes": {"/data": {}},
        "Labels": {"x": "y"},
        "WorkingDir": "/w",
        "Entrypoint": ["sh"],
    },
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "1" * 64]},
    "history": [{"created_by": "ADD"}, {"created_by": "ENV", "empty_layer": True}],
}


def _config(base: dict[str, object], layers: tuple[Layer, ...] = ()) -> dict[str, object]:
    return oci.image_config(base, layers, env={"OLD": "b", "NEW": "c"}, labels={"l": "1"}, entrypoint=["e"], cmd=["c"], created=0)


def test_a_base_config_is_inherited_without_its_builders_traces() -> None:
    config = _config(BASE)
    assert not {"container", "container_config", "docker_version"} & set(config)
    inner = config["config"]
    assert isinstance(inner, dict)
    assert inner["Env"] == ["PATH=/bin", "KEEP=1", "OLD=b", "NEW=c"]
    assert (inner["User"], inner["Volumes"], inner["WorkingDir"]) == ("2000", {"/data": {}}, "/w")
    assert inner["Labels"] == {"l": "1", "x": "y"}
    assert (inner["Entrypoint"], inner["Cmd"]) == (["e"], ["c"])
    assert config["history"] == BASE["history"]
    assert BASE["config"]["Entrypoint"] == ["sh"]  # type: ignore[index]


def test_a_history_that_does_not_fit_is_replaced() -> None:
    assert _config({**BASE, "history": []})["history"] == [{"created_by": "layer of the base image"}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1970-01-01T00:01:00Z", 60), ("2020-01-01T00:00:00.123456789Z", 1577836800), ("0001-01-01T00:00:00Z", 0), (None, 0), ("x", 0)],
)
def test_times_of_a_base(text: object, expected: int) -> None:
    assert oci.seconds(text) == expected


def test_unknown_machines_are_named() -> None:
    assert (oci.architecture("x86_64"), oci.architecture("aarch64")) == ("amd64", "arm64")
    with pytest.raises(MachineError, match="riscv64"):
        oci.architecture("riscv64")


def test_documents_are_utf8() -> None:
    with pytest.raises(ArtifactError, match="not UTF-8"):
        oci.encode({"a": "\udcff"})
