"""Compare how the server is started with how it was started at the bake: arguments and variables.

The neutral document of a set (made by its runtime, per version):
`transport` {flag: words that follow, null: all up to the next flag}: where the server listens, ignored;
`arguments` [flag]: may differ, said; `variables` [fnmatch]: names of
variables that may differ; `watched` [fnmatch]: those that are compared at all; `kinds` [name]: the caches that any other difference makes invalid.
Unknown is never neutral.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from baker.inside.finding import Finding

POSITIONAL = ""  # key of the words that follow no flag
# Whole words of a name: `--api-key`, HF_TOKEN; not `--max-num-batched-tokens`, not `--tokenizer`.
_WORDS = r"(?<![a-z0-9])(?:[a-z]*key|[a-z]*token|[a-z]*secret|pass(?:word|wd|phrase)|credentials?|auth(?:orization)?)(?![a-z0-9])"
SECRET = re.compile(_WORDS, re.IGNORECASE)
# In a value: such a name with something assigned to it, or the beginning of a well-known kind of token.
SECRET_VALUE = re.compile(_WORDS + r"[\"']?\s*[:=]|(?<![a-z0-9])(?:hf_|sk-|ghp_|AKIA)", re.IGNORECASE)
MASK = "***"
WIDTH = 160  # characters of a value in a message

Flags = Dict[str, List[str]]


def masked(name: str, value: str) -> str:
    """`value` for people: *** when the name or the value itself looks like a secret, cut to 160 characters."""
    if SECRET.search(name) or SECRET_VALUE.search(value):
        return MASK
    return value if len(value) <= WIDTH else value[:WIDTH] + "…"


def _is_flag(word: str) -> bool:
    """A word that begins a flag: `-x`, `--x`; not `-`, not a negative number."""
    return len(word) > 1 and word[0] == "-" and not re.match(r"-[\d.]", word)


def _name(word: str) -> Tuple[str, Optional[str]]:
    """Flag name and attached value: underscores are dashes before the first dot, `-O3` is `-O` `3`."""
    name, equals, value = word.partition("=")
    attached = value if equals else None
    if re.match(r"-[A-Z]\d", name):
        name, attached = name[:2], word[2:]
    head, dot, tail = name.partition(".")
    return head.replace("_", "-") + dot + tail, attached


def normal_name(flag: str) -> str:
    """The name under which `parse` files a flag: `--no-some_flag` is `--some-flag`."""
    name = _name(flag)[0]
    return "--" + name[5:] if name.startswith("--no-") else name


def _value(text: str) -> str:
    """A value in one form: JSON objects and lists canonical, booleans in lower case."""
    if text[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
        except (ValueError, RecursionError):
            return text
    return text.lower() if text in ("True", "False") else text


def parse(argv: Sequence[str], arity: Mapping[str, Any]) -> Flags:
    """Arguments as {flag: values}; a switch has the value "true", `--no-x` is `--x` "false", words before any flag or after `--` stand under "".

    `arity` gives the number of words that follow a flag, where that is known. Elsewhere a flag takes all words up to the next flag: a positional
    word after a switch counts as its value, on both sides of a comparison alike.
    """
    flags: Flags = {}
    words = list(argv)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            flags.setdefault(POSITIONAL, []).extend(words[at:])
            break
        if not _is_flag(word):
            flags.setdefault(POSITIONAL, []).append(_value(word))
            continue
        name, attached = _name(word)
        limit = arity.get(name)
        end = at
        while attached is None and end < len(words) and not _is_flag(words[end]) and (not isinstance(limit, int) or end - at < limit):
            end += 1
        values = [attached] if attached is not None else words[at:end]
        at = end
        if not values and name.startswith("--no-"):
            name, values = "--" + name[5:], ["false"]
        flags.setdefault(name, []).extend(_value(v) for v in values or ["true"])
    return flags


def _is_program(found: Sequence[str], baked: Sequence[str]) -> bool:
    """The same program: the base name of the first word (any `python3.11` is `python`), then equal words."""

    def first(word: str) -> str:
        return re.sub(r"^python[\d.]*$", "python", word.rpartition("/")[2])

    return len(found) >= len(baked) and first(found[0]) == first(baked[0]) and list(found[1 : len(baked)]) == list(baked[1:])


def _listed(neutral: Mapping[str, Any], key: str) -> List[str]:
    """The strings of a list in the neutral document; anything malformed counts as not neutral."""
    value = neutral.get(key, [])
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _on_kinds(neutral: Mapping[str, Any], code: str, message: str, found: str, expected: str, remedy: str) -> List[Finding]:
    """A hard finding for each kind that the difference makes invalid; a soft one for the image where the runtime names none."""
    kinds = _listed(neutral, "kinds")
    if not kinds:
        return [Finding(code, "soft", "", message, found, expected, remedy)]
    return [Finding(code, "hard", kind, message, found, expected, remedy) for kind in kinds]


def _words(name: str, values: Optional[Sequence[str]]) -> str:
    return "absent" if values is None else " ".join(masked(name, value) for value in values)


def compare_arguments(argv: Sequence[str], serve: Mapping[str, Any], neutral: Mapping[str, Any]) -> List[Finding]:
    """Findings for `argv` (program and arguments) against the set's `serve`: {"program": [...], "argv": [...]}."""
    baked, program = serve.get("argv"), serve.get("program")
    if baked is None or not program or not _strings(baked) or not _strings(program):
        text = "the manifest does not record how the server was started at the bake"
        return _on_kinds(neutral, "arguments-unrecorded", text, "no serve.program and serve.argv", "both", "bake again")
    if not argv or not _is_program(argv, program):
        head = " ".join(masked("", word) for word in argv[: len(program)])
        remedy = "start the server with %s, or bake with this program" % " ".join(program)
        return _on_kinds(neutral, "program-differs", "another program than at the bake", head or "nothing", " ".join(program), remedy)
    transport = neutral.get("transport")
    arity = transport if isinstance(transport, dict) else {}
    now, then = parse(argv[len(program) :], arity), parse(baked, arity)
    ignored = {normal_name(flag) for flag in arity}
    soft = {normal_name(flag) for flag in _listed(neutral, "arguments")}
    findings = []
    for flag in sorted((now.keys() | then.keys()) - ignored):
        found, expected = now.get(flag), then.get(flag)
        if found != expected:
            findings += _difference(flag, found, expected, flag in soft, neutral)
    return findings


def _difference(flag: str, found: Optional[List[str]], expected: Optional[List[str]], soft: bool, neutral: Mapping[str, Any]) -> List[Finding]:
    """One differing flag as findings."""
    title, got, want = flag or "positional arguments", _words(flag, found), _words(flag, expected)
    if soft:
        return [Finding("argument-differs", "soft", "", "%s differs, neutral" % title, got, want)]
    serve_with = "without %s" % title if expected is None else "with %s %s" % (title, want)
    bake_with = "without it" if found is None else "with %s %s" % (title, got)
    remedy = "serve %s, or bake %s" % (serve_with, bake_with)
    return _on_kinds(neutral, "argument-differs", "%s differs from the bake" % title, got, want, remedy)


def _strings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def compare_variables(env: Mapping[str, str], serve: Mapping[str, Any], neutral: Mapping[str, Any], own: Sequence[str] = ()) -> List[Finding]:
    """Findings for the watched variables of `env` against the set's `serve["env"]`; `own` are the cache variables, which are judged elsewhere.

    Of a variable whose name looks like a secret only its presence is compared, and its value is never shown.
    """
    baked, watched = serve.get("env"), _listed(neutral, "watched")
    if not watched:
        return []
    if not isinstance(baked, dict):
        text = "the manifest does not record the server's variables at the bake"
        return _on_kinds(neutral, "variables-unrecorded", text, "no serve.env", "an object", "bake again")
    soft = _listed(neutral, "variables")
    findings: List[Finding] = []
    for name in sorted(env.keys() | baked.keys()):
        if name in own or name.startswith("BAKER_") or not any(fnmatchcase(name, pattern) for pattern in watched):
            continue
        found, expected = env.get(name), baked.get(name)
        if found == expected or (SECRET.search(name) and found is not None and expected is not None):
            continue
        got, want = ("unset" if v is None else masked(name, str(v)) for v in (found, expected))
        if any(fnmatchcase(name, pattern) for pattern in soft):
            findings.append(Finding("variable-differs", "soft", "", "%s differs, neutral" % name, got, want))
            continue
        remedy = "%s, or bake with the value it has here" % ("unset %s" % name if expected is None else "set %s=%s" % (name, want))
        findings += _on_kinds(neutral, "variable-differs", "%s differs from the bake" % name, got, want, remedy)
    return findings
