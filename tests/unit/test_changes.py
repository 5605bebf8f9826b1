"""What counts as a new or changed file."""

from __future__ import annotations

from baker.inside.manifest import FileEntry, Pattern
from baker.steps.changes import compare, expected_live, merge

A = ["file", 3, "a" * 64]
B = ["file", 3, "b" * 64]
LINK = ["link", 0, "/pristine/x"]


def test_every_kind_of_change_is_named() -> None:
    before = {"same": A, "content": A, "type": A, "gone": A, "target": LINK}
    after = {"same": A, "content": B, "type": LINK, "new": A, "target": ["link", 0, "/other"]}
    found = compare("live/x", before, after, ())
    assert found.new == ("live/x/new",)
    assert found.changed == ("live/x/content", "live/x/target", "live/x/type")
    assert found.gone == ("live/x/gone",)
    assert found.count == 5


def test_sockets_do_not_count_and_patterns_are_reported() -> None:
    found = compare("tmp", {}, {"s": ["other", 0, None], "vllm_dist_ab": A, "x": A}, [Pattern("vllm_dist_*", "rendezvous")])
    assert found.new == ("tmp/x",)
    assert found.allowed == {"vllm_dist_*: rendezvous": ("tmp/vllm_dist_ab",)}


def test_a_file_that_becomes_a_socket_counts() -> None:
    assert compare("live", {"x": A}, {"x": ["other", 0, None]}, ()).gone == ("live/x",)


def test_merge_keeps_everything() -> None:
    one = compare("a", {}, {"x": A, "l": A}, [Pattern("l", "why")])
    two = compare("b", {"y": A}, {"l": A}, [Pattern("l", "why")])
    both = merge([one, two])
    assert both.new == ("a/x",)
    assert both.gone == ("b/y",)
    assert both.allowed == {"l: why": ("a/l", "b/l")}


def test_live_may_hold_links_or_copies_but_only_of_what_was_baked() -> None:
    files = [FileEntry("x", 3, "a" * 64), FileEntry("y", 3, "b" * 64), FileEntry("z", 3, "b" * 64)]
    live = {"x": ["link", 9, "/p/x"], "y": B, "z": ["link", 9, "/elsewhere/z"]}
    found = compare("live", expected_live(files, "/p", live), live, ())
    assert found.changed == ("live/z",)
    assert found.count == 1
