"""The truth table's judgement over canned observations: what counts as hit, miss, partial, refused, crash; when start and the real code disagree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vgpu.table import render
from tests.vgpu.table.judge import COLD, USE, Played, judge, outcome
from tests.vgpu.table.rows import ROWS, Row

MODEL = "torch_compile_cache/torch_aot_compile/0a/rank_0_0/model"
LOADED = {"aot-loaded": ["Directly load AOT compilation from path x"]}


def tree(*paths: str, content: str = "0") -> dict[str, list[Any]]:
    return {path: ["file", 1, content] for path in paths}


def played(kind: str, before: Any, after: Any, *, said: str = USE, status: str = "ready", lines: Any = None) -> Played:
    return Played(status, 1.0, {kind: before}, {kind: after}, lines or {}, "RuntimeError: x", {kind: said}, {kind: ["fact-differs"]}, "partly")


KERNELS = [f"K{n}/k.cubin" for n in range(10)]


@pytest.mark.parametrize(
    ("kind", "start", "what"),
    [
        ("triton", played("triton", tree(*KERNELS), tree(*KERNELS)), "hit"),
        ("triton", played("triton", tree(*KERNELS), tree(*KERNELS, "N/n.cubin")), "partial"),
        ("triton", played("triton", tree(*KERNELS), tree(*KERNELS, *[f"N{n}/k.cubin" for n in range(10)])), "miss"),
        ("triton", played("triton", {}, tree(*KERNELS)), "miss"),
        ("triton", played("triton", {}, {}), "unused"),
        ("triton", played("triton", tree(*KERNELS), tree(*KERNELS, content="1")), "miss"),
        ("triton", played("triton", tree(*KERNELS), tree(*KERNELS), status="died"), "crash"),
        ("vllm", played("vllm", tree(MODEL), tree(MODEL), lines=LOADED), "hit"),
        ("vllm", played("vllm", tree(MODEL), tree(MODEL)), "miss"),
        ("vllm", played("vllm", tree(MODEL), tree(MODEL, "torch_compile_cache/torch_aot_compile/0b/rank_0_0/model"), lines=LOADED), "miss"),
        ("vllm", played("vllm", tree(MODEL), tree(MODEL, content="1"), lines={"aot-refused": ["Compiling model again"]}), "refused"),
        ("flashinfer", played("flashinfer", tree("a.so"), tree("a.so", "x.lock")), "hit"),
        ("flashinfer", played("flashinfer", tree("a.so"), tree("a.so", content="1")), "miss"),
    ],
)
def test_outcomes(kind: str, start: Played, what: str) -> None:
    assert outcome(kind, start, ["*.lock"]).what == what


HIT = (tree(*KERNELS), tree(*KERNELS))
MISS = (tree(*KERNELS), tree(*KERNELS, *[f"N{n}/k.cubin" for n in range(10)]))


@pytest.mark.parametrize(
    ("said", "through", "forced", "agrees"),
    [
        (USE, HIT, HIT, True),
        (USE, MISS, MISS, False),  # present and never hit: the failure that baker exists for
        (COLD, ({}, tree(*KERNELS)), MISS, True),
        (COLD, ({}, tree(*KERNELS)), HIT, False),  # an over-refusal
    ],
)
def test_disagreements_need_a_reason(said: str, through: Any, forced: Any, agrees: bool) -> None:
    first, second = played("triton", *through, said=said), played("triton", *forced, said=said)
    assert judge(Row("r", "w"), "triton", first, second, []).agrees is agrees
    explained = judge(Row("r", "w", reasons={"triton": "written down"}), "triton", first, second, [])
    assert explained.agrees
    assert ("written down" in explained.note) is not agrees


def test_a_kind_that_start_did_not_name_counts_as_cold() -> None:
    silent = Played("ready", 1.0, {"triton": HIT[0]}, {"triton": HIT[1]}, {})
    assert not judge(Row("r", "w"), "triton", silent, silent, []).agrees


def test_rows_are_named_once_and_say_why() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(row.why for row in ROWS)
    assert sum(row.one_machine for row in ROWS) > 15
    assert {row.name for row in ROWS} >= {"same", "driver-minor", "h200", "a100", "b200", "mig", "two-gpus", "uid", "read-only", "other-path"}


def test_the_page_holds_every_row_and_no_path_of_this_machine() -> None:
    through, forced = played("triton", *HIT), played("triton", *MISS)
    row = Row("same", "the machine of the bake")
    numbers = {"word": "compatible", "status": {}, "seconds": {}, "error": "/secret/place died"}
    table = render.document(
        {"title": "t", "first_line": "Virtual GPU", "versions": {"vllm": "0.33.0"}}, [(row, numbers, [judge(row, "triton", through, forced, [])])]
    )
    text = render.scrub(render.markdown(table), {"/secret": "<x>", "/secret/place": "<there>"})
    assert "| same | the machine of the bake | compatible | use: hit / miss (+10) |" in text
    assert "<there> died" in text
    assert "/secret" not in text
    assert table["disagreements"] == []


def test_rows_that_are_played_again_replace_the_old_ones_and_the_others_are_judged_by_todays_reasons() -> None:
    def stored(name: str, *, said: str, what: str) -> dict[str, Any]:
        outcome = {"what": what, "had": 1, "new": 0, "changed": 0, "evidence": ""}
        kind = {"kind": "triton", "said": said, "codes": [], "done": outcome, "forced": outcome, "agrees": False, "note": ""}
        return {"name": name, "kinds": [kind], "agrees": False}

    old = [stored("same", said=USE, what="miss"), stored("uid", said=USE, what="miss"), stored("cubin-damaged", said=COLD, what="hit")]
    table = render.merged(
        {"rows": [{"name": "same", "agrees": True}], "disagreements": []}, [*old, stored("gone", said=USE, what="hit")], [r.name for r in ROWS]
    )
    assert [row["name"] for row in table["rows"]] == ["same", "uid", "cubin-damaged"]
    assert table["disagreements"] == ["uid"]
    assert "left out" in table["rows"][2]["kinds"][0]["note"]
