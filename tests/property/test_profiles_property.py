"""Whatever a profile file holds, it becomes a profile or a clear refusal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from baker import profiles
from baker.errors import UsageError
from baker.spec import Profile

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
keys = st.sampled_from(["name", "description", "serve", "env", "stages", "batch", "input", "output", "requests", "bacth"]) | st.text(max_size=4)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(), inner, max_size=4), max_leaves=12)
stage = st.fixed_dictionaries({key: scalars | st.integers(1, 64) for key in ("name", "batch", "input", "output", "requests")})
near = st.fixed_dictionaries(
    {"name": st.just("x") | values, "stages": st.lists(stage | values, max_size=3)}, optional={"env": values, "serve": values}
)
good = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z0-9][a-z0-9._-]{0,10}", fullmatch=True),
        "stages": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.from_regex(r"[a-z0-9][a-z0-9._-]{0,10}", fullmatch=True),
                    "batch": st.integers(1, 4096),
                    "input": st.integers(1, 10_000_000),
                    "output": st.integers(1, 10_000_000),
                    "requests": st.integers(1, 1000),
                }
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda entry: entry["name"],
        ),
    }
)


def read(data: bytes) -> Profile | list[profiles.Problem]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.yaml")
        path.write_bytes(data)
        return profiles.validate(path)


def accepted_or_refused(data: bytes) -> None:
    refusal = None
    try:
        checked = read(data)
    except UsageError as error:
        refusal = error
    if refusal:
        assert refusal.found
        assert refusal.expected
    elif not isinstance(checked, Profile):
        assert checked
        assert all(problem.line() and json.dumps(problem.document()) for problem in checked)


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    accepted_or_refused(data)


@given(values | near)
def test_any_document(document: Any) -> None:
    accepted_or_refused(yaml.safe_dump(document, allow_unicode=True).encode())


@given(good)
def test_what_is_within_the_limits_is_accepted_as_it_is(document: dict[str, Any]) -> None:
    checked = read(yaml.safe_dump(document).encode())
    assert isinstance(checked, Profile), checked
    assert checked.document()["entries"] == tuple(document["stages"])
