"""The pure core: rows, arguments, variables, files, the choice of a set. Everything observed is handed in."""

from __future__ import annotations

from typing import Any

import pytest

from baker.inside.arguments import compare_arguments, compare_variables, masked, normal_name, parse
from baker.inside.check import check
from baker.inside.choose import pick_set
from baker.inside.inventory import Entry
from baker.inside.manifest import CacheSet, FileEntry, Kind, Manifest, Row
from baker.inside.pristine import Survey
from baker.inside.rows import judge, version

SHA = "a" * 64
NEUTRAL = {
    "transport": {"--port": 1, "--host": 1, "--api-key": 1, "--enable-ssl-refresh": 0},
    "arguments": ["--seed", "--enable-log-requests"],
    "variables": ["VLLM_NIXL_*"],
    "watched": ["VLLM_*"],
    "kinds": ["vllm", "inductor"],
}


def row(fact: str, op: str, value: Any, severity: str = "hard") -> Row:
    return Row(fact, op, value, severity, "", "the remedy")


@pytest.mark.parametrize(
    ("op", "value", "fact", "fits"),
    [
        ("eq", "9.0", "9.0", True),
        ("eq", None, None, True),
        ("eq", 1, True, False),
        ("eq", "9.0", ["9.0", "8.9"], False),
        ("ge", "580.95.05", "580.126", True),
        ("ge", "580.95.05", "580.95", False),
        ("ge", "13.0", "13", True),
        ("ge", "13.0", "12.9", False),
        ("ge", "13.0", None, False),
        ("ge", 4, 16, True),
        ("le", "2.36", "2.36+local", True),
        ("le", "glibc", "2.36", None),
        ("in", ["a", "b"], "b", True),
        ("in", ["a", "b"], "c", False),
        ("in", "abc", "a", None),
        ("prefix", "2.13.", "2.13.0+cpu", True),
        ("prefix", "2.13.", None, False),
        ("prefix", 2, "2", None),
        ("superset", ["avx2", "fma"], ["avx", "avx2", "fma"], True),
        ("superset", ["avx2", "amx_tile"], ["avx2"], False),
        ("superset", [], None, False),
        ("present", None, "/usr/bin/g++", True),
        ("present", None, None, False),
    ],
)
def test_operators(op: str, value: Any, fact: Any, fits: bool | None) -> None:
    finding = judge(row("f", op, value), "k", {"f": fact, "unknown": {}})
    assert (finding.code if finding else "") == {True: "", False: "fact-differs", None: "row-malformed"}[fits]
    assert finding is None or (finding.severity == "hard" and finding.remedy == "the remedy")


def test_versions_compare_as_numbers() -> None:
    assert version("580.126.1") > version("580.95.05") > version("570") > version("9.9")
    assert version("1." + "9" * 5000) > version("1.1")


def test_the_finding_names_both_values_and_what_is_missing() -> None:
    finding = judge(row("cpu.isa", "superset", ["avx2", "amx_tile"]), "inductor", {"cpu.isa": ["avx2"], "unknown": {}})
    assert finding
    assert finding.line() == "hard inductor fact-differs: cpu.isa does not fit (got without amx_tile, expected all 2 of the builder's): the remedy"


@pytest.mark.parametrize("severity", ["hard", "soft"])
def test_an_unknown_fact_is_a_finding_with_the_reason(severity: str) -> None:
    facts = {"f": None, "unknown": {"f": "the driver does not tell"}}
    finding = judge(row("f", "eq", None, severity), "k", facts)
    assert finding
    assert (finding.code, finding.severity, finding.found) == ("unknown-fact", severity, "the driver does not tell")
    unobserved = judge(row("g", "eq", 1, severity), "k", facts)
    assert unobserved
    assert unobserved.code == "unknown-fact"


def test_unknown_operator_and_unknown_severity_hide() -> None:
    unknown = judge(row("f", "matches", ".*", "soft"), "k", {"f": "x", "unknown": {}})
    assert unknown
    assert (unknown.code, unknown.severity) == ("unknown-operator", "hard")
    strange = judge(row("f", "eq", "y", "warning"), "k", {"f": "x", "unknown": {}})
    assert strange
    assert strange.severity == "hard"


def test_a_secret_variable_in_a_row_is_masked() -> None:
    finding = judge(row("env.VLLM_API_KEY", "eq", "s3cr3t-a"), "k", {"env.VLLM_API_KEY": "s3cr3t-b", "unknown": {}})
    assert finding
    assert "s3cr3t" not in finding.line()


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        (["--a=1", "--b", "2", "--c"], {"--a": ["1"], "--b": ["2"], "--c": ["true"]}),
        (["--max_model_len", "5", "--x_y.z_w=1"], {"--max-model-len": ["5"], "--x-y.z_w": ["1"]}),
        (["-O3"], {"-O": ["3"]}),
        (["-O", "3"], {"-O": ["3"]}),
        (["-O.level=3"], {"-O.level": ["3"]}),
        (["--no-enable-prefix-caching"], {"--enable-prefix-caching": ["false"]}),
        (["--a", "-1", "-0.5"], {"--a": ["-1", "-0.5"]}),
        (["--a", "1", "--a", "2"], {"--a": ["1", "2"]}),
        (["model", "--a", "--", "--b"], {"": ["model", "--b"], "--a": ["true"]}),
        (["--port", "1", "model"], {"--port": ["1"], "": ["model"]}),
        (["--enable-ssl-refresh", "model"], {"--enable-ssl-refresh": ["true"], "": ["model"]}),
        (["--j", '{"b": 1, "a": 2}'], {"--j": ['{"a":2,"b":1}']}),
        (["--j", "{not json"], {"--j": ["{not json"]}),
        (["--t", "True"], {"--t": ["true"]}),
        (["-"], {"": ["-"]}),
    ],
)
def test_arguments_are_normalised(argv: list[str], flags: dict[str, list[str]]) -> None:
    assert parse(argv, NEUTRAL["transport"]) == flags  # type: ignore[arg-type]
    assert normal_name("--no-some_flag") == "--some-flag"


SERVE = {"program": ["/v/bin/python", "-m", "server"], "argv": ["--model", "m", "--max-num-batched-tokens", "8192"], "env": {"VLLM_A": "1"}}


def arguments(*words: str, program: tuple[str, ...] = ("/v/bin/python", "-m", "server")) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity, f.kind) for f in compare_arguments([*program, *words], SERVE, NEUTRAL)]


def test_a_flag_that_differs_is_named_with_both_values_on_each_kind() -> None:
    """O-04."""
    found = compare_arguments([*SERVE["program"], "--model", "m", "--max-num-batched-tokens=1024"], SERVE, NEUTRAL)
    assert [f.kind for f in found] == ["vllm", "inductor"]
    assert found[0].line() == (
        "hard vllm argument-differs: --max-num-batched-tokens differs from the bake (got 1024, expected 8192): "
        "serve with --max-num-batched-tokens 8192, or bake with --max-num-batched-tokens 1024"
    )


def test_order_form_and_transport_do_not_differ() -> None:
    assert arguments("--max_num_batched_tokens=8192", "--port", "9000", "--host=::", "--model", "m") == []
    assert arguments("--model", "m", "--max-num-batched-tokens", "8192", program=("python3.12", "-m", "server")) == []


def test_neutral_and_other_differences() -> None:
    same = ("--model", "m", "--max-num-batched-tokens", "8192")
    assert arguments(*same, "--seed", "1") == [("argument-differs", "soft", "")]
    assert arguments(*same, "--no-enable-log-requests") == [("argument-differs", "soft", "")]
    assert arguments(*same, "--new-flag") == [("argument-differs", "hard", "vllm"), ("argument-differs", "hard", "inductor")]
    assert arguments("--model", "m")[0][0] == "argument-differs"
    assert arguments(program=("bash", "-c", "x"))[0] == ("program-differs", "hard", "vllm")
    assert compare_arguments(["x"], {}, NEUTRAL)[0].code == "arguments-unrecorded"
    assert compare_arguments(["x"], {}, {})[0].severity == "soft", "a runtime that names no kinds has no key that arguments enter"


def test_secrets_in_arguments_and_variables_are_masked() -> None:
    """O-53."""
    argv = [*SERVE["program"], "--model", "m", "--hf-overrides", '{"token": "hf_TESTSECRET"}', "--auth-header=hf_TESTSECRET", "--x", "hf_TESTSECRET"]
    lines = "\n".join(f.line() for f in compare_arguments(argv, SERVE, NEUTRAL))
    assert "--hf-overrides" in lines
    assert "--auth-header" in lines
    assert "TESTSECRET" not in lines
    env = {"VLLM_API_KEY": "TESTSECRET", "VLLM_A": "1"}
    found = compare_variables(env, SERVE, NEUTRAL)
    assert found[0].message.startswith("VLLM_API_KEY")
    assert "TESTSECRET" not in "".join(f.line() for f in found)
    assert masked("--n", "x" * 500) == "x" * 160 + "…"
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "--api-key", "apiKey", "DB_PASSWORD", "env.VLLM_API_KEY"):
        assert masked(name, "v") == "***", name
    for name, value in (("--max-num-batched-tokens", "8192"), ("--tokenizer", "org/key-lime"), ("VLLM_KEEP", "1"), ("KEYS", "sorted")):
        assert masked(name, value) == value, name


def test_variables_new_gone_and_changed_are_named() -> None:
    """O-02."""

    def codes(**env: str) -> list[tuple[str, str, str]]:
        return [(f.severity, f.kind, f.message.split()[0]) for f in compare_variables(env, SERVE, NEUTRAL, own=["VLLM_CACHE_ROOT"])]

    assert codes(VLLM_A="1", PATH="/bin", VLLM_CACHE_ROOT="/x") == []
    assert codes(VLLM_A="1", VLLM_LOOPBACK_IP="10.0.0.7") == [("hard", "vllm", "VLLM_LOOPBACK_IP"), ("hard", "inductor", "VLLM_LOOPBACK_IP")]
    assert codes(VLLM_A="1", VLLM_NIXL_SIDE_CHANNEL_HOST="10.0.0.7") == [("soft", "", "VLLM_NIXL_SIDE_CHANNEL_HOST")]
    assert codes()[0] == ("hard", "vllm", "VLLM_A")
    assert codes(VLLM_A="2")[0] == ("hard", "vllm", "VLLM_A")


def kind(name: str = "inductor", **changes: Any) -> Kind:
    files = (FileEntry("a/x.so", 10, SHA), FileEntry("a/y.cpp", 10, SHA, role="inert"))
    return Kind(**{"name": name, "variables": {}, "rows": (row("f", "eq", 1),), "files": files, **changes})


def cache_set(*kinds: Kind, arch: str = "cpu", product: str = "", name: str = "cpu", argv: list[str] | None = None) -> CacheSet:
    serve = {"program": ["server"], "argv": argv or [], "env": {}}
    return CacheSet(name, {"arch": arch, "product": product}, {}, {}, serve, {**NEUTRAL, "watched": []}, kinds or (kind(),))


GOOD = {"a/x.so": Entry("file", 10, SHA), "a/y.cpp": Entry("file", 10, None)}


def codes(survey: Survey, level: str = "code", **changes: Any) -> list[tuple[str, str]]:
    verdict = check(cache_set(kind(**changes)), {"f": 1, "unknown": {}}, {"inductor": survey}, ["server"], {}, level)
    assert bool(verdict.hidden) == bool(verdict.hard) == (verdict.word != "compatible")
    return [(f.code, f.message) for f in verdict.findings]


def test_files_are_compared_by_level() -> None:
    assert codes(Survey(GOOD, {})) == []
    changed = {**GOOD, "a/x.so": Entry("file", 10, "b" * 64)}
    assert codes(Survey(changed, {})) == [("file-damaged", "a/x.so")]
    unhashed = {**GOOD, "a/x.so": Entry("file", 10, None)}
    assert codes(Survey(unhashed, {}), "sizes") == []
    assert codes(Survey(unhashed, {})) == [("file-unreadable", "a/x.so")], "code that was not hashed is never taken for good"
    assert codes(Survey(GOOD, {}), "full") == [("file-unreadable", "a/y.cpp")]


def test_a_linked_directory_is_one_finding_not_many() -> None:
    assert codes(Survey({"a": Entry("link", 1, "/elsewhere")}, {})) == [("file-type", "a")]


def test_many_damaged_files_are_bounded_and_counted() -> None:
    files = tuple(FileEntry(f"{i:04}", 1, SHA) for i in range(1000))
    found = codes(Survey({}, {}), files=files)
    assert len(found) == 9
    assert found[-1] == ("files-differ", "992 more paths differ: the status file lists them")
    verdict = check(cache_set(kind(files=files)), {"f": 1, "unknown": {}}, {"inductor": Survey({}, {})}, [], {})
    assert len(verdict.damage["inductor"]) == 1000


def test_a_mount_over_pristine_is_told_apart_from_damage() -> None:
    """O-09."""
    assert [c for c, _ in codes(Survey({}, {}, mount="/opt/baker/sets"))] == ["hidden-by-mount"]
    assert [c for c, _ in codes(Survey({}, {}, "/opt/baker/sets/cpu: No such file", "/opt/baker/sets"))] == ["hidden-by-mount"]
    assert codes(Survey(GOOD, {}, mount="/opt/baker/sets")) == [], "a volume that holds the right files is fine"


def test_kinds_without_rows_and_malformed_kinds_are_hidden() -> None:
    assert codes(Survey(GOOD, {}), rows=())[0][0] == "no-rows"
    assert codes(Survey(GOOD, {}), variables={"A=B": "x"})[0][0] == "kind-malformed"
    assert codes(Survey(GOOD, {}), variables={"A": "\ud800"})[0][0] == "kind-malformed"
    twice = check(cache_set(kind(), kind()), {"f": 1, "unknown": {}}, {"inductor": Survey(GOOD, {})}, [], {})
    assert twice.word == "cold"
    assert {f.code for f in twice.findings} == {"kind-malformed"}
    unseen = check(cache_set(), {"f": 1, "unknown": {}}, {}, [], {})
    assert unseen.word == "cold"


def test_one_bad_kind_leaves_the_others_visible() -> None:
    good, bad = kind("inductor"), kind("triton", rows=(row("f", "eq", 2),))
    surveys = {"inductor": Survey(GOOD, {}), "triton": Survey(GOOD, {})}
    verdict = check(cache_set(good, bad), {"f": 1, "unknown": {}}, surveys, ["server"], {})
    assert (verdict.word, verdict.shown, verdict.hidden) == ("partly", ["inductor"], {"triton": ["fact-differs"]})
    soft = kind("triton", rows=(row("f", "eq", 2, "soft"),))
    assert check(cache_set(good, soft), {"f": 1, "unknown": {}}, surveys, ["server"], {}).word == "compatible"


def test_a_variable_that_points_elsewhere_is_never_called_compatible() -> None:
    pinned = kind(variables={"TORCHINDUCTOR_CACHE_DIR": "/opt/baker/live/inductor"})
    env = {"TORCHINDUCTOR_CACHE_DIR": "/.cache"}
    verdict = check(cache_set(pinned), {"f": 1, "unknown": {}}, {"inductor": Survey(GOOD, {})}, ["server"], env)
    assert (verdict.word, verdict.elsewhere, verdict.hard) == ("cold", ["inductor"], [])


H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def pick(*sets: CacheSet, argv: tuple[str, ...] = (), **facts: Any) -> str | None:
    gpu = {key.replace("_", "."): value for key, value in facts.items()}
    chosen = pick_set(Manifest("/opt/baker", {}, sets, {}), {"unknown": {}, **gpu}, list(argv)).cache_set
    return chosen.name if chosen else None


def test_the_set_is_picked_by_architecture_product_and_arguments() -> None:
    h100 = cache_set(arch="sm_90", product=H100, name="h100")
    h200 = cache_set(arch="sm_90", product=H200, name="h200")
    cpu = cache_set(name="cpu")
    assert pick(h100, h200, cpu, gpu_cc="9.0", gpu_name=H200) == "h200"
    assert pick(h100, cpu, gpu_cc="9.0", gpu_name=H200) == "h100", "another product of the architecture: its rows decide kind by kind"
    assert pick(h100, cpu, gpu_cc="10.0", gpu_name="NVIDIA B200") == "cpu"
    assert pick(h100, cpu) == "cpu"
    assert pick(h100, h200) is None
    prefill, decode = cache_set(name="prefill", argv=["--role", "a"]), cache_set(name="decode", argv=["--role", "b"])
    assert pick(prefill, decode, argv=("server", "--role", "b")) == "decode"


def test_no_set_fits_says_why_for_each() -> None:
    h100, b200 = cache_set(arch="sm_90", name="h100"), cache_set(arch="sm_100", name="b200")
    choice = pick_set(Manifest("/", {}, (h100, b200), {}), {"gpu.error": "libcuda.so.1 not found", "unknown": {}}, [])
    assert [(f.code, f.found, f.expected) for f in choice.findings] == [
        ("no-set-fits", "no usable GPU libcuda.so.1 not found", "sm_90"),
        ("no-set-fits", "no usable GPU libcuda.so.1 not found", "sm_100"),
    ]
