"""Profiles: the warm-up matrix and serve arguments of one serving intent, as YAML files that are checked key by key.

A profile is untrusted text: it is read with a safe loader, within a size limit, without anchors or aliases, and nothing in it is executed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from baker.errors import UsageError
from baker.spec import Entry, Profile
from baker.yamlfile import read_yaml

SUFFIXES = (".yaml", ".yml")

# Upper bounds keep a typing slip (a zero too many) from becoming hours of warm-up; 10,000,000 tokens is the longest context on the market.
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
_Batch = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_Requests = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# What a missing key should have held, in words.
_EXPECTED = {
    "name": "lower-case letters, digits, dots, dashes",
    "stages": "a list of stages",
    "batch": "concurrent prompts, 1 to 4096",
    "input": "prompt tokens, 1 or more",
    "output": "generated tokens, 1 or more",
    "requests": "repeats of the batch, 1 to 1000",
}


_QUOTES = "put the value in quotes: YAML reads bare numbers, dates and yes/no as other types"
_NO_SECRETS = "a profile is stored in the image: give secrets to the server where it runs"


class _Stage(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    batch: _Batch
    input: _Tokens
    output: _Tokens
    requests: _Requests


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    stages: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=256)]
    description: str = ""
    serve: list[str] = []
    env: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a profile; `where` is the path inside the document (`stages[2].batch`), "" the document itself."""

    where: str
    message: str
    found: str = ""
    expected: str = ""
    remedy: str = ""

    def document(self) -> dict[str, str]:
        """The problem as a JSON object."""
        return {"where": self.where, "message": self.message, "found": self.found, "expected": self.expected, "remedy": self.remedy}

    def line(self) -> str:
        """The problem on one line, for people."""
        text = f"{self.where or 'document'}: {self.message}"
        if self.found or self.expected:
            text += f" (found {self.found or 'nothing'}, expected {self.expected or 'something else'})"
        return f"{text}: {self.remedy}" if self.remedy else text


def folder() -> Path:
    """Directory of the profiles that come with baker: inside the installed package, or `profiles/` of a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "data" / "profiles"
    return packaged if packaged.is_dir() else here.parent / "profiles"


def names() -> tuple[str, ...]:
    """Names of the profiles that come with baker, sorted."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml")))


def locate(name_or_path: str) -> Path:
    """The file behind a profile name or path. Raises UsageError with the nearest name."""
    if "/" in name_or_path or name_or_path.endswith(SUFFIXES):
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "no such file"
            raise UsageError(f"profile file {name_or_path}: {kind}", code="profile-missing", found=kind, expected="a YAML file")
        return path
    if name_or_path in names():
        return folder() / f"{name_or_path}.yaml"
    near = difflib.get_close_matches(name_or_path, names(), 1)
    raise UsageError(
        f"unknown profile {name_or_path!r}",
        code="unknown-profile",
        found=name_or_path,
        expected=", ".join(names()) + ", or the path of a YAML file",
        remedy=f"did you mean {near[0]}?" if near else "see `baker profiles list`; a path must hold a slash or end in .yaml",
    )


def load(name_or_path: str) -> Profile:
    """Load one profile by name or by path. Raises UsageError: the first problem in its text, all of them in `details["problems"]`."""
    path = locate(name_or_path)
    checked = validate(path)
    if isinstance(checked, Profile):
        return checked
    raise invalid(path, checked)


def invalid(path: Path, problems: Sequence[Problem]) -> UsageError:
    """The error for a profile with these problems: the first in its text, all in `details["problems"]`."""
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return UsageError(
        f"profile {path}: {first.where + ': ' if first.where else ''}{first.message}{more}",
        code="profile-invalid",
        found=first.found,
        expected=first.expected,
        remedy=first.remedy or "compare with `baker profiles show default`",
        problems=[problem.document() for problem in problems],
    )


def validate(path: Path) -> Profile | list[Problem]:
    """The profile in `path`, or everything that is wrong with it. Raises UsageError when the file cannot be read as one YAML document."""
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        return [Problem("", "not a mapping", _kind(raw), "a mapping with the keys name and stages")]
    problems = list(_problems(raw))
    if problems:
        return problems
    document = msgspec.convert(raw, _Document)
    stages = msgspec.convert(document.stages, list[_Stage])
    entries = tuple(Entry(stage.name, stage.batch, stage.input, stage.output, stage.requests) for stage in stages)
    return Profile(document.name, document.description, entries, tuple(document.serve), dict(document.env))


def _problems(raw: Mapping[Any, Any]) -> Iterator[Problem]:
    yield from _fields(raw, _Document, "")
    stages = raw.get("stages")
    seen: dict[str, int] = {}
    for index, stage in enumerate(stages if isinstance(stages, list) else []):
        where = f"stages[{index}]"
        if not isinstance(stage, dict):
            yield Problem(where, "not a mapping", _kind(stage), "a mapping with name, batch, input, output and requests")
            continue
        yield from _fields(stage, _Stage, where)
        name = stage.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            yield Problem(f"{where}.name", "stands twice", name, "a name of its own", f"stages[{seen[name]}] has this name already")
    env, serve = raw.get("env"), raw.get("serve")
    if isinstance(env, dict):
        yield from _environment(env)
    for index, word in enumerate(serve if isinstance(serve, list) else []):
        flag = word.partition("=")[0] if isinstance(word, str) else ""
        if flag.startswith("--") and looks_secret(flag[2:].replace("-", "_")):
            yield Problem(f"serve[{index}]", "looks like a secret", flag, "no secrets", _NO_SECRETS)


def _environment(env: Mapping[Any, Any]) -> Iterator[Problem]:
    for name, value in env.items():
        where = f"env.{name}"
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            yield Problem(where, "no name of a variable", repr(name), "letters, digits and underscores, no digit first")
        elif looks_secret(name):
            yield Problem(where, "looks like a secret", name, "no secrets", _NO_SECRETS)
        elif not isinstance(value, str):
            yield Problem(where, "not accepted", _value(value, ""), "text", _QUOTES)


def _fields(raw: Mapping[Any, Any], struct: type[msgspec.Struct], where: str) -> Iterator[Problem]:
    """Problems of one mapping: unknown keys with the nearest known one, missing keys, values of another type or beyond their limits."""
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    prefix = f"{where}." if where else ""
    for key in raw:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            yield Problem(f"{prefix}{key}", "unknown key", str(key), ", ".join(fields), f"did you mean {near[0]}?" if near else "remove it")
    for name, field in fields.items():
        if name not in raw:
            if field.required:
                yield Problem(f"{prefix}{name}", "missing", "", _EXPECTED[name], f"add {name}")
            continue
        try:
            msgspec.convert(raw[name], field.type)
        except msgspec.ValidationError as error:
            if name == "env" and isinstance(raw[name], dict):
                continue  # _environment names the variable, which msgspec's path cannot
            message, _, inner = str(error).partition(" - at `")
            path = inner.rstrip("`").removeprefix("$")
            yield Problem(f"{prefix}{name}{path}", "not accepted", _value(raw[name], path), _plain(message), _hint(raw[name], message))


def looks_secret(name: str) -> bool:
    """True for variable names whose values are usually secret: …_TOKEN, …_KEY, …SECRET…, …PASSWORD…, …CREDENTIAL…."""
    upper = name.upper()
    return upper.endswith(("TOKEN", "_KEY", "APIKEY", "PASSWD")) or any(word in upper for word in ("SECRET", "PASSWORD", "CREDENTIAL"))


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _value(value: Any, path: str) -> str:
    """The refused value itself where it is a scalar at the field's own level, else what kind of thing the field holds."""
    if path.startswith("[") and path.endswith("]") and path[1:-1].isdigit() and isinstance(value, list):
        value = value[int(path[1:-1])]
    return repr(value)[:80] if isinstance(value, str | int | float) else _kind(value)


def _plain(message: str) -> str:
    """msgspec's sentence as an expectation: "Expected `int` >= 1" becomes "int >= 1"."""
    text = message.replace("`", "")
    for lead in ("Expected ", "Object "):
        text = text.removeprefix(lead)
    return text.partition(", got ")[0]


def _hint(value: Any, message: str) -> str:
    if "str" in message and not isinstance(value, str):
        return _QUOTES
    return "give one that is within the limits" if ">=" in message or "<=" in message else ""
