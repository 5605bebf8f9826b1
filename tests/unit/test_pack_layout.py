from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from baker.errors import ArtifactError, MachineError, UsageError
from baker.inside.manifest import digest
from baker.pack import atomic, oci
from baker.pack.layout import Layout, tag_of
from baker.pack.validate import validate
from tests.bad import sound


def _findings(directory: Path, tag: str = "latest") -> list[str]:
    layout = Layout.open(directory)
    entry = next(e for e in layout.entries() if tag_of(e) == tag)
    return [f"{f.code} {f.message}" for f in validate(directory, entry)]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{tmp_path / 'image'}")
    return tmp_path / "image"


def test_a_built_image_is_as_it_claims(built: Path) -> None:
    assert _findings(built) == []
    assert sorted(p.name for p in built.iterdir()) == ["blobs", "index.json", "oci-layout"]


def test_same_inputs_same_digests(tmp_path: Path) -> None:
    """Case O-31, the whole image: two directories, two umasks."""
    images = []
    for number, umask in enumerate((0o022, 0o077)):
        before = os.umask(umask)
        try:
            where = tmp_path / f"{number}"
            order = sorted(sound.FILES, reverse=bool(number))
            images.append(sound.build(sound.write(where / "t", sound.FILES, order), where / "o", f"oci:{where}/image"))
        finally:
            os.umask(before)
    assert images[0].digest == images[1].digest
    assert images[0].manifest["config"]["digest"] == images[1].manifest["config"]["digest"]
    assert sound.hashes(tmp_path / "0/image") == sound.hashes(tmp_path / "1/image")


def test_tags_live_side_by_side_and_are_replaced_one_by_one(built: Path, tmp_path: Path) -> None:
    first = Oci().read(f"oci:{built}:latest").digest
    other = sound.build(sound.write(tmp_path / "t2", {"a": b"1"}), tmp_path / "o", f"oci:{built}", "two")
    assert Oci().read(f"oci:{built}:latest").digest == first
    third = sound.build(sound.write(tmp_path / "t3", {"a": b"3"}), tmp_path / "o", f"oci:{built}", "latest")
    assert Oci().read(f"oci:{built}:latest").digest == third.digest
    assert Oci().read(f"oci:{built}:two").digest == other.digest
    assert sorted(tag_of(e) for e in Layout.open(built).entries()) == ["latest", "two"]


def test_a_rebuild_heals_a_damaged_blob(built: Path, tmp_path: Path) -> None:
    blob = built / "blobs/sha256" / Oci().read(f"oci:{built}").manifest["layers"][0]["digest"][7:]
    blob.unlink()
    blob.write_bytes(b"garbage")
    assert any("layer-damaged" in f or "digest-differs" in f for f in _findings(built))
    sound.build(sound.write(tmp_path / "again"), tmp_path / "o2", f"oci:{built}")
    assert _findings(built) == []


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_one_flipped_bit_in_any_blob_is_found(built: Path) -> None:
    blobs = sorted((built / "blobs/sha256").iterdir())
    assert len(blobs) == 5  # kind, start, manifest layer; config; manifest
    for blob in blobs:
        kept = blob.read_bytes()
        _flip(blob)
        assert _findings(built), blob.name
        blob.unlink()
        blob.write_bytes(kept)
    assert _findings(built) == []


def test_a_damaged_document_names_blob_found_and_expected(built: Path) -> None:
    entry = Layout.open(built).entries()[0]
    blob = built / "blobs/sha256" / entry["digest"][7:]
    _flip(blob)
    with pytest.raises(ArtifactError) as caught:
        Oci().read(f"oci:{built}")
    assert blob.name in caught.value.message
    assert entry["digest"] in caught.value.expected
    assert digest(blob.read_bytes()) in caught.value.found


BROKEN: dict[str, Callable[[Path], object]] = {
    "no index": lambda d: (d / "index.json").unlink(),
    "no marker": lambda d: (d / "oci-layout").unlink(),
    "index is no JSON": lambda d: (d / "index.json").write_text("{"),
    "index is a list": lambda d: (d / "index.json").write_text("[]"),
    "index lists no manifests": lambda d: (d / "index.json").write_text("{}"),
    "index lists numbers": lambda d: (d / "index.json").write_text('{"manifests":[1]}'),
    "a digest that is a path": lambda d: (d / "index.json").write_text(
        json.dumps({"manifests": [{"digest": "sha256:../../../etc/passwd", "mediaType": oci.MANIFEST}]})
    ),
    "deeply nested": lambda d: (d / "index.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_layout_is_an_artifact_error(built: Path, name: str) -> None:
    BROKEN[name](built)
    with pytest.raises(ArtifactError):
        Oci().read(f"oci:{built}")


def test_a_directory_with_other_content_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("1")
    with pytest.raises(UsageError, match="no OCI image layout"):
        sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{tmp_path / 'home'}")
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_a_file_as_destination_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1")
    with pytest.raises(MachineError, match="cannot write"):
        Layout.create(tmp_path / "f")


_WRITER = """
import sys
from pathlib import Path
from tests.bad import sound
import random
where = Path(sys.argv[1])
for number in range(10_000):
    tree = sound.write(where / "t", {"f": random.Random(number).randbytes(300_000), "n": str(number).encode()})
    print(number, flush=True)
    sound.build(tree, where / "o", f"oci:{where}/image")
"""


def test_kill_minus_nine_at_any_moment_leaves_a_valid_image(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    image = sound.build(sound.write(tmp_path / "first"), tmp_path / "o", f"oci:{tmp_path / 'image'}")
    for delay in (0.0, 0.004, 0.011, 0.023):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, tmp_path], cwd=repository, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        threading.Event().wait(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert _findings(tmp_path / "image") == []
    # The next build cleans up and succeeds.
    again = sound.build(tmp_path / "first", tmp_path / "o", f"oci:{tmp_path / 'image'}")
    assert again.digest == image.digest
    assert not list((tmp_path / "image").rglob(atomic.PREFIX + "*"))
    assert not list((tmp_path / "o").glob(atomic.PREFIX + "*"))


def test_concurrent_writers_lose_no_tag(tmp_path: Path) -> None:
    trees = [sound.write(tmp_path / f"t{n}", {"f": str(n).encode()}) for n in range(6)]
    threads = [
        threading.Thread(target=sound.build, args=(tree, tmp_path / f"o{n}", f"oci:{tmp_path / 'image'}", f"tag{n}")) for n, tree in enumerate(trees)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tag_of(e) for e in Layout.open(tmp_path / "image").entries()) == [f"tag{n}" for n in range(6)]
    assert all(_findings(tmp_path / "image", f"tag{n}") == [] for n in range(6))


def test_full_disk_keeps_the_old_image(tmp_path: Path) -> None:
    """Case O-36, the layout's side."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False, capture_output=True).returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{small}/image")
        big = sound.write(tmp_path / "big", {"noise": os.urandom(3 << 20)})
        with pytest.raises(MachineError, match=r"bytes needed, \d+ bytes free") as caught:
            sound.build(big, tmp_path / "o", f"oci:{small}/image")
        assert caught.value.code == "no-space"
        assert _findings(small / "image") == []
        assert not list(small.rglob(atomic.PREFIX + "*"))
    finally:
        subprocess.run(["umount", small], check=True)


def test_validation_names_what_an_edit_changed(built: Path) -> None:
    """A manifest edited to match itself is still not the one that ENV names, and its files are not those of the layers."""
    layout = Layout.open(built)
    entry = layout.entries()[0]
    manifest = layout.document(entry)
    config = layout.document(manifest["config"])
    config["config"]["Env"] = [e for e in config["config"]["Env"] if not e.startswith("BAKER_MANIFEST_DIGEST")]
    config["history"].pop()
    config["rootfs"]["diff_ids"][0] = "sha256:" + "0" * 64
    data = oci.encode(config)
    manifest["config"] = oci.descriptor(oci.CONFIG, data)
    encoded = oci.encode(manifest)
    with layout.locked():
        layout.put(data)
        layout.put(encoded)
        layout.tag(oci.descriptor(oci.MANIFEST, encoded), "edited")
    codes = {line.split()[0] for line in _findings(built, "edited")}
    assert codes == {"history-count", "diff-id-differs", "manifest-digest"}


def test_no_blob_holds_a_secret_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case O-49."""
    values = {
        "HF_TOKEN": "hf_TESTSECRET",
        "HUGGING_FACE_HUB_TOKEN": "hf_TESTSECRET2",
        "AWS_SECRET_ACCESS_KEY": "aws-test-secret",
        "REGISTRY_PASSWORD": "reg-test-secret",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    image = sound.build(sound.write(tmp_path / "t"), tmp_path / "o", f"oci:{tmp_path / 'image'}")
    Oci().attach(image, "application/vnd.example", b"{}")
    everything = [p.read_bytes() for p in (tmp_path / "image").rglob("*") if p.is_file()]
    everything += [gzip.decompress(data) for data in everything if data[:2] == b"\x1f\x8b"]
    assert len(everything) > 8
    assert not [value for value in values.values() for data in everything if value.encode() in data]
