"""How start was called: command line and BAKER_* variables, and the errors that end it."""

from __future__ import annotations

import os
import re
import sys
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from baker.inside.pristine import LEVELS

POLICIES = ("auto", "strict", "off")
USAGE = """usage: start [--check|--version|--help] -- COMMAND [ARGUMENT ...]
  checks the baked caches against this machine, shows the server those that fit, and becomes COMMAND (same process)
  --check   print the verdict as JSON; exit 0 compatible, 10 partly, 11 cold; nothing is filled or started
environment: BAKER_POLICY=auto|strict|off  BAKER_VERIFY=sizes|code|full  BAKER_VERIFY_SECONDS=600
             BAKER_STATUS=PATH  BAKER_TERMINATION_LOG=PATH"""

# start fails with 100 + the class of baker.errors, so that its codes never meet the server's; a refusal by policy is 107 (design 5.1).
BUG, WRONG_USAGE, WRONG_MACHINE, REFUSED = 101, 102, 103, 107


class StartError(Exception):
    """Ends start; `code` is the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Settings(NamedTuple):
    """`root` holds this zip; `mode` is "run", "check", "version" or "help"; `limit_s` bounds the hashing, in seconds."""

    root: str
    mode: str
    command: List[str]
    policy: str
    level: str
    limit_s: float
    env: Dict[str, str]


def _choice(env: Mapping[str, str], name: str, default: str, choices: Sequence[str]) -> str:
    value = env.get(name) or default
    if value not in choices:
        raise StartError(WRONG_USAGE, "%s: found %r, expected one of %s" % (name, value, ", ".join(choices)))
    return value


def _seconds(env: Mapping[str, str]) -> float:
    value = env.get("BAKER_VERIFY_SECONDS") or "600"
    if not re.match(r"[0-9]{1,6}(\.[0-9]{1,6})?\Z", value) or float(value) <= 0:
        raise StartError(WRONG_USAGE, "BAKER_VERIFY_SECONDS: found %r, expected a positive number of seconds" % value)
    return float(value)


def parse(argv: Optional[Sequence[str]] = None, environ: Optional[Mapping[str, str]] = None) -> Settings:
    """Settings from argv (argv[0] is the zip) and the environment. Raises StartError(102) saying what was found and expected."""
    argv = sys.argv if argv is None else argv
    env = dict(os.environ if environ is None else environ)
    words = list(argv[1:])
    cut = words.index("--") if "--" in words else len(words)
    options, command = words[:cut], words[cut + 1 :]
    modes = {"--check": "check", "--version": "version", "--help": "help", "-h": "help"}
    mode = "run"
    for option in options:
        if option not in modes:
            raise StartError(WRONG_USAGE, "found %r before --, expected %s or nothing\n%s" % (option, ", ".join(modes), USAGE))
        mode = modes[option]
    if mode == "run" and (not command or not command[0]):
        found = "nothing after --" if cut < len(words) else "no --"
        raise StartError(WRONG_USAGE, "%s, expected -- and the server's command\n%s" % (found, USAGE))
    policy = _choice(env, "BAKER_POLICY", "auto", POLICIES)
    level = _choice(env, "BAKER_VERIFY", "code", LEVELS)
    return Settings(os.path.dirname(os.path.abspath(argv[0])), mode, command, policy, level, _seconds(env), env)
