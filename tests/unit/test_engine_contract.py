"""What every engine must do; `HOMES` says how a reference of each looks."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from baker import engines
from baker.engines.base import Engine, Image
from baker.engines.oci import Oci
from baker.engines.reference import LayoutReference, parse
from baker.errors import ArtifactError, UsageError
from baker.inside.manifest import digest
from baker.pack import oci
from baker.pack.layout import Layout
from baker.pack.unpack import own_layers, unpack
from baker.pack.validate import validate
from tests.bad import sound

HOMES: dict[str, Callable[[Path], str]] = {"oci": lambda tmp: f"oci:{tmp / 'image'}"}
TYPE = "application/vnd.example.proof+json"


@pytest.fixture(params=engines.ALL, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture
def image(engine: Engine, tmp_path: Path) -> Image:
    assert engine is engines.by_name(engine.name)
    return sound.build(sound.write(tmp_path / "t"), tmp_path / "o", HOMES[engine.name](tmp_path))


def test_scratch_is_bare(engine: Engine) -> None:
    base = engine.resolve("scratch")
    assert (base.digest, list(base.layers), base.created) == ("", [], 0)
    assert base.config["os"] == "linux"
    assert engine.ground(base, "/opt/baker").existing == frozenset()


def test_what_is_built_can_be_read(engine: Engine, image: Image, tmp_path: Path) -> None:
    again = engine.read(image.reference)
    assert (again.digest, again.config, again.manifest) == (image.digest, image.config, image.manifest)
    inner = again.config["config"]
    assert inner["Entrypoint"] == ["/usr/bin/python3", "-I", "-S", "/opt/baker/start", "--", "vllm"]
    assert inner["Cmd"] == ["serve", "m"]
    assert inner["Env"][0].startswith("BAKER_MANIFEST_DIGEST=sha256:")
    assert len(again.config["history"]) == len(again.manifest["layers"]) == 3
    assert [layer["annotations"][oci.KIND] for layer in again.manifest["layers"]] == ["inductor", "start", "manifest"]


def test_documents_are_attached_in_order_and_none_is_replaced(engine: Engine, image: Image) -> None:
    assert engine.referrers(image, TYPE) == []
    names = [engine.attach(image, TYPE, data) for data in (b'{"n":1}', b'{"n":2}', b'{"n":1}')]
    engine.attach(image, "application/vnd.example.other", b"{}")
    found = engine.referrers(image, TYPE)
    assert [data for _, data in found] == [b'{"n":1}', b'{"n":2}']
    assert [name for name, _ in found] == names[:2]
    assert engine.read(image.reference).digest == image.digest


def test_a_damaged_attachment_is_refused(engine: Engine, image: Image) -> None:
    engine.attach(image, TYPE, b'{"n":1}')
    blob = image.blobs / digest(b'{"n":1}')[7:]
    blob.write_bytes(b'{"n":2}')
    with pytest.raises(ArtifactError, match=blob.name):
        engine.referrers(image, TYPE)


@pytest.mark.parametrize("reference", ["docker:vllm", "registry.example/vllm:1", "vllm/vllm-openai", "", "oci:", "oci"])
def test_references_of_other_kinds_say_what_is_accepted(engine: Engine, reference: str) -> None:
    for use in (engine.resolve, engine.read):
        with pytest.raises(UsageError) as caught:
            use(reference)
        assert "oci:DIR[:TAG]" in caught.value.expected


def test_unknown_engines_get_a_hint() -> None:
    with pytest.raises(UsageError, match="unknown engine 'ocl'") as caught:
        engines.by_name("ocl")
    assert caught.value.remedy == "did you mean oci?"


@pytest.mark.parametrize(
    ("text", "directory", "tag"),
    [
        ("oci:a", "a", ""),
        ("oci:a:b", "a", "b"),
        ("oci:./a:b/", "a:b", ""),
        ("oci:/x:y/z", "/x:y/z", ""),
        ("oci:/x:y/z:t", "/x:y/z", "t"),
        ("oci:a:b:c", "a:b", "c"),
        ("oci:.", ".", ""),
    ],
)
def test_the_last_colon_after_the_last_slash_separates_the_tag(text: str, directory: str, tag: str) -> None:
    assert parse(text) == LayoutReference(Path(directory), tag)


@pytest.mark.parametrize("text", ["oci:a:", "oci:a:-x", "oci:a:sp ace", "oci:a:" + "t" * 129])
def test_bad_tags_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a tag"):
        parse(text)


def test_two_different_tags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two tags"):
        sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{tmp_path / 'image'}:a", "b")


def test_without_a_tag_the_only_image_is_meant(image: Image, tmp_path: Path) -> None:
    reader = Oci()
    reader.attach(image, TYPE, b"{}")
    assert reader.read(f"oci:{tmp_path / 'image'}").digest == image.digest
    sound.build(sound.write(tmp_path / "t2", {"a": b"1"}), tmp_path / "o", f"oci:{tmp_path / 'image'}", "two")
    with pytest.raises(UsageError, match="which image") as caught:
        reader.read(f"oci:{tmp_path / 'image'}")
    assert caught.value.expected == "one of: latest, two"
    with pytest.raises(UsageError, match="no such tag"):
        reader.read(f"oci:{tmp_path / 'image'}:three")


def _base(tmp_path: Path, *, docker: bool = False, index: bool = False, **config: object) -> Path:
    """A small base image with a /usr-merged tree, written by hand in OCI's or Docker's media types."""
    layout = Layout.create(tmp_path / "base")
    plain = tmp_path / "layer.tar"
    with tarfile.open(plain, "w") as tar:
        for name, kind, link in (("usr", tarfile.DIRTYPE, ""), ("lib", tarfile.SYMTYPE, "usr/lib"), ("opt", tarfile.DIRTYPE, "")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o755
            tar.addfile(info)
    data = plain.read_bytes()
    inner = {"Env": ["PATH=/base/bin", "LANG=C"], "User": "2000", "Entrypoint": ["serve"], **config}
    document = {"architecture": oci.architecture(), "os": "linux", "created": "2020-01-01T00:00:00Z", "container": "x", "config": inner}
    document |= {"rootfs": {"type": "layers", "diff_ids": [digest(data)]}, "history": [{"created_by": "tar"}]}
    kinds = (oci.MANIFESTS[1], "application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar")
    types = kinds if docker else (oci.MANIFEST, oci.CONFIG, "application/vnd.oci.image.layer.v1.tar")
    encoded = oci.encode(document)
    manifest = {"schemaVersion": 2, "mediaType": types[0], "config": oci.descriptor(types[1], encoded), "layers": [oci.descriptor(types[2], data)]}
    top = oci.encode(manifest)
    entry = oci.descriptor(types[0], top, platform={"architecture": oci.architecture(), "os": "linux"})
    with layout.locked():
        for blob in (data, encoded, top):
            layout.put(blob)
        if index:
            other = {**entry, "platform": {"architecture": "s390x", "os": "linux"}, "digest": "sha256:" + "0" * 64}
            listing = oci.encode({"schemaVersion": 2, "mediaType": oci.INDEXES[docker], "manifests": [other, entry]})
            layout.put(listing)
            entry = oci.descriptor(oci.INDEXES[docker], listing)
        layout.tag(entry, "1")
    return tmp_path / "base"


@pytest.mark.parametrize("docker", [False, True])
@pytest.mark.parametrize("index", [False, True])
def test_a_base_is_inherited_by_reference(tmp_path: Path, docker: bool, index: bool) -> None:
    where = _base(tmp_path, docker=docker, index=index)
    engine = Oci()
    base = engine.resolve(f"oci:{where}:1")
    assert base.created == 1577836800
    ground = engine.ground(base, "/opt/baker")
    assert (ground.existing, ground.user) == ({"opt"}, 2000)
    image = sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{tmp_path / 'image'}", base=base)
    assert image.manifest["layers"][0] == {**base.layers[0], "mediaType": "application/vnd.oci.image.layer.v1.tar"}
    assert image.manifest["annotations"]["org.opencontainers.image.base.digest"] == base.digest
    inner = image.config["config"]
    assert (inner["User"], "container" in image.config) == ("2000", False)
    assert f"PATH={sound.ROOT}/bin:/base/bin" in inner["Env"]
    assert "LANG=C" in inner["Env"]
    own = own_layers(image.manifest, image.config, image.blobs)
    assert [f.digest for f in own] == [layer["digest"] for layer in image.manifest["layers"][1:]]
    unpack(own, tmp_path / "root", prefix=sound.ROOT)
    assert sound.hashes(tmp_path / "root/sets/cpu/inductor") == sound.hashes(tmp_path / "t")
    assert validate(tmp_path / "image", Layout.open(tmp_path / "image").entries()[0]) == []


def test_a_base_in_the_same_layout_is_fine(tmp_path: Path) -> None:
    where = _base(tmp_path)
    base = Oci().resolve(f"oci:{where}:1")
    image = sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{where}:2", base=base)
    assert Oci().resolve(f"oci:{where}:1").digest == base.digest != image.digest


def test_a_damaged_base_layer_does_not_get_in(tmp_path: Path) -> None:
    where = _base(tmp_path)
    base = Oci().resolve(f"oci:{where}:1")
    blob = where / "blobs/sha256" / base.layers[0]["digest"][7:]
    data = bytearray(blob.read_bytes())
    data[300] ^= 1
    blob.write_bytes(data)
    for act in (
        lambda: Oci().ground(base, "/opt/baker"),
        lambda: sound.build(sound.write(tmp_path / "t"), tmp_path / "o", "oci:" + str(tmp_path / "image"), base=base),
    ):
        with pytest.raises(ArtifactError) as caught:
            act()
        assert base.layers[0]["digest"][7:] in caught.value.message
    assert not (tmp_path / "image/index.json").exists()


def test_a_root_below_a_link_of_the_base_is_refused(tmp_path: Path) -> None:
    base = Oci().resolve(f"oci:{_base(tmp_path)}:1")
    with pytest.raises(ArtifactError, match="/lib is a link in the base") as caught:
        Oci().ground(base, "/lib/baker")
    assert "--root" in caught.value.remedy


def test_a_base_for_other_machines_only_is_named(tmp_path: Path) -> None:
    layout = Layout.create(tmp_path / "base")
    listing = oci.encode({"schemaVersion": 2, "manifests": [{"platform": {"os": "linux", "architecture": "s390x"}, "digest": "x"}]})
    with layout.locked():
        layout.put(listing)
        layout.tag(oci.descriptor(oci.INDEX, listing), "1")
    with pytest.raises(ArtifactError, match="no image for this machine") as caught:
        Oci().resolve(f"oci:{tmp_path / 'base'}:1")
    assert caught.value.found == "linux/s390x"


def test_building_leaves_no_path_of_this_machine_in_the_image(image: Image, tmp_path: Path) -> None:
    text = json.dumps(image.config) + json.dumps(image.manifest) + json.dumps(Layout.open(tmp_path / "image").index())
    assert str(tmp_path) not in text
    assert os.uname().nodename not in text
