"""The entrypoint of a baked image: check the caches, show the server those that fit, become the server.

manifest digest -> manifest -> probe -> pick the set -> check rows and files -> fill live -> status file -> one line a finding -> exec.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import baker
from baker.inside import fill as filling
from baker.inside import libcuda, status
from baker.inside import live as lives
from baker.inside.check import Verdict
from baker.inside.decide import Decision, decide
from baker.inside.finding import Finding
from baker.inside.pristine import directory
from baker.inside.probe import home_writable, which
from baker.inside.settings import BUG, REFUSED, USAGE, WRONG_MACHINE, Settings, StartError, parse

CHECK_EXITS = {"compatible": 0, "partly": 10, "cold": 11}


class Ready(NamedTuple):
    """What the server gets: the verdict as it came out, its live directory and variables to set."""

    verdict: Verdict
    live: str
    variables: Dict[str, str]


def _end(number: int, _frame: Any) -> None:
    os.write(2, b"baker: ended by signal %d before the server was started\n" % number)
    os._exit(128 + number)


def _take_signals() -> None:
    """React to TERM and INT at once: the first process of a container has no default action. exec gives the server the default back."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def _open_standard_files() -> None:
    """Put /dev/null where 0, 1 or 2 is closed: else the first file that is opened would become the server's stdout or stderr."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _find_server(settings: Settings) -> str:
    """Absolute path of the server's program; `<root>/bin` is left out, for its scripts lead back to start. Raises StartError(103)."""
    program, own = settings.command[0], os.path.join(settings.root, "bin")
    name = os.path.basename(program) if os.path.dirname(program) == own else program
    found = which(name, settings.env, own)
    if found is None:
        where = "it is no executable file" if "/" in name else "not on PATH=%s" % settings.env.get("PATH", os.defpath)
        raise StartError(WRONG_MACHINE, "server %r not found: %s; give the path of a program of this image after --" % (program, where))
    return found


def _path_bound(decision: Decision, why: str) -> List[Finding]:
    """Hard findings for the kinds whose entries hold absolute paths: useless at another live directory."""
    kinds = decision.cache_set.kinds if decision.cache_set else ()
    remedy = "make the image's own live directory usable"
    return [Finding("path-bound", "hard", k.name, "its entries hold absolute paths, and %s" % why, None, None, remedy) for k in kinds if k.path_bound]


def _at_root(decision: Decision, settings: Settings) -> List[Finding]:
    """Findings when the image lies at another root than it was made for."""
    made_for = decision.manifest.root if decision.manifest else settings.root
    if os.path.realpath(made_for) == os.path.realpath(settings.root):
        return []
    moved = Finding("root-moved", "soft", "", "the image lies at another root", settings.root, made_for, "unpack it at %s" % made_for)
    return [moved, *_path_bound(decision, "the root is another")]


def _jobs(decision: Decision, verdict: Verdict, settings: Settings) -> List[filling.Job]:
    kinds = decision.cache_set.kinds if decision.cache_set else ()
    visible = set(verdict.shown)
    out = verdict.quarantined
    return [
        filling.Job(k, directory(settings.root, decision.cache_set, k), out.get(k.name, frozenset()))
        for k in kinds
        if decision.cache_set and k.name in visible
    ]


def _refuse_if_strict(verdict: Verdict, settings: Settings) -> None:
    if settings.policy == "strict" and (verdict.hard or not verdict.shown):
        raise StartError(REFUSED, "refused by BAKER_POLICY=strict: %d hard findings; nothing was started" % len(verdict.hard))


def _fill(decision: Decision, verdict: Verdict, settings: Settings, private: bool) -> Tuple[Verdict, lives.Live]:
    """Claim live (or a private one) and fill it. Raises StartError, lives.UnusableError, filling.FillError."""
    image_live = os.path.join(settings.root, "live")
    if private:
        path = lives.make_private(settings.env, "live")
        live = lives.Live(path, True, -1)
        findings: List[Finding] = []
    else:
        live, findings = lives.claim(image_live, settings.env)
    if live.private:
        findings = findings + _path_bound(decision, "a private live stands in")
    verdict = verdict.plus(findings)
    try:
        _refuse_if_strict(verdict, settings)
        hide = [name for name in verdict.hidden if "/" not in name and not name.startswith(".")]
        moved = filling.fill(live, decision.digest, verdict.set_name, _jobs(decision, verdict, settings), hide)
    finally:
        if live.lock >= 0:
            os.close(live.lock)
    return verdict.plus(moved), live


def _ready(decision: Decision, verdict: Verdict, settings: Settings) -> Ready:
    """Fill live, with a private one as second try; when even that fails every kind is hidden and live must be empty."""
    image_live = os.path.join(settings.root, "live")
    try:
        verdict, live = _fill(decision, verdict, settings, False)
    except filling.FillError as error:
        message = "live cannot be filled: %s" % error
        verdict = verdict.plus([Finding("live-private", "soft", "", message, None, None, "free space or fix the rights")])
        try:
            verdict, live = _fill(decision, verdict, settings, True)
        except filling.FillError as second:
            raise lives.UnusableError(str(second)) from None
    pins = {} if decision.cache_set is None else {n: v for kind in decision.cache_set.kinds for n, v in kind.variables.items()}
    usable = {n: v for n, v in pins.items() if n and "=" not in n and "\0" not in n + v}
    made_for = os.path.join(decision.manifest.root if decision.manifest else settings.root, "live")
    variables, changed = filling.move_variables(settings.env, usable, made_for, live.path)
    if live.private or changed:
        status.say("live is %s; variables moved there: %s" % (live.path, ", ".join(changed) or "none"))
    ready = Ready(verdict, live.path, variables if image_live != live.path or changed else {})
    linked = libcuda.make({**settings.env, **ready.variables}, live.path, decision.facts.get("cuda.library"))
    return ready._replace(verdict=verdict.plus(linked))


def _without_live(verdict: Verdict, settings: Settings, reason: str) -> Ready:
    """No place for live: the server goes on cold if what it will see is empty. Raises StartError(103) when it is not."""
    image_live = os.path.join(settings.root, "live")
    remedy = "mount a writable, empty volume at %s, or set TMPDIR to a writable directory" % image_live
    try:
        filled = os.path.lexists(image_live) and (not os.path.isdir(image_live) or lives.holds_files(image_live))
    except OSError:
        filled = True
    if filled:
        raise StartError(WRONG_MACHINE, "no live directory: %s, and %s is not empty; %s" % (reason, image_live, remedy))
    return Ready(verdict.plus([Finding("no-live", "hard", "", reason, None, "a writable directory", remedy)]), image_live, {})


def _home(env: Dict[str, str]) -> List[Finding]:
    """Give the server a HOME that it can write when the given one is unset, / or not writable (arbitrary user ids)."""
    if home_writable(env):
        return []
    try:
        new = lives.make_private(env, "home")
    except lives.UnusableError as error:
        return [Finding("home-unusable", "soft", "", str(error), env.get("HOME", "unset"), "a writable HOME", "set HOME or TMPDIR")]
    finding = Finding("home-set", "soft", "", "HOME cannot be written; the server gets %s" % new, env.get("HOME", "unset"), "a writable directory")
    env["HOME"] = new
    return [finding]


def _report(decision: Decision, ready: Ready, settings: Settings, begin: float) -> None:
    outcome = status.Outcome(
        ready.verdict, decision.digest, decision.cache_set, decision.facts, settings.policy, settings.level, ready.live, time.monotonic() - begin
    )
    for finding in ready.verdict.findings:
        status.say(finding.line())
    status.say(status.summary(outcome))
    status.write_line(status.line(outcome, status.write_status(outcome, settings.env)))


def _off(settings: Settings) -> Ready:
    """Policy off: nothing is looked at but whether live is empty, which the policy promises."""
    image_live = os.path.join(settings.root, "live")
    findings = []
    try:
        if lives.holds_files(image_live):
            text = "BAKER_POLICY=off, but live holds files of an earlier start or of a volume: the server will see them, unchecked"
            findings = [Finding("live-not-empty", "soft", "", text, image_live, "empty", "start with a fresh live")]
    except OSError as error:
        findings = [Finding("live-unreadable", "soft", "", str(error), image_live, "a directory")]
    return Ready(Verdict("", (), tuple(findings), {}), image_live, {})


def _prepare(settings: Settings, begin: float) -> Ready:
    """Everything between the command line and exec. Raises StartError."""
    if settings.policy == "off":
        decision, ready = Decision(Verdict("", (), (), {}), "", None, None, {}), _off(settings)
    else:
        decision = decide(settings)
        verdict = decision.verdict.plus(_at_root(decision, settings))
        ready = Ready(verdict, os.path.join(settings.root, "live"), {})
        try:
            _refuse_if_strict(verdict, settings)
            try:
                ready = _ready(decision, verdict, settings)
            except lives.UnusableError as error:
                ready = _without_live(verdict, settings, str(error))
                _refuse_if_strict(ready.verdict, settings)
        except StartError as error:
            _report(decision, ready, settings, begin)
            status.terminate([str(error), *(finding.line() for finding in ready.verdict.hard)], settings.env)
            raise
    settings.env.update(ready.variables)
    ready = Ready(ready.verdict.plus(_home(settings.env)), ready.live, ready.variables)
    _report(decision, ready, settings, begin)
    return ready


def _check_only(settings: Settings) -> int:
    import json

    decision = decide(settings)
    verdict = decision.verdict.plus(_at_root(decision, settings))
    outcome = status.Outcome(verdict, decision.digest, decision.cache_set, decision.facts, settings.policy, settings.level, "", 0.0)
    print(json.dumps(status.document(outcome), indent=1))
    return CHECK_EXITS[verdict.word]


def _cold_after_bug(settings: Settings) -> None:
    """A bug of ours must not keep the server from serving (policy auto): it starts with an empty private live. Raises StartError."""
    import traceback  # 4 ms that only this path pays

    status.write_line(traceback.format_exc())
    if settings.policy == "strict":
        status.terminate(["start failed by a bug of its own", traceback.format_exc()[-2000:]], settings.env)
        raise StartError(BUG, "start failed by a bug of its own; the traceback stands above")
    status.say("COLD: start failed by a bug of its own; the server gets an empty live")
    try:
        private = lives.make_private(settings.env, "live")
    except lives.UnusableError as error:
        raise StartError(BUG, "start failed by a bug of its own, and %s" % error) from None
    settings.env.update(filling.move_variables(settings.env, {}, os.path.join(settings.root, "live"), private)[0])


def _become(path: str, settings: Settings) -> None:
    """Replace this process by the server. Raises StartError(103)."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these two, and exec would hand that on
    sys.stdout.flush()
    try:
        os.execve(path, settings.command, settings.env)
    except (OSError, ValueError) as error:
        raise StartError(WRONG_MACHINE, "server %s cannot be started: %s" % (path, error)) from None


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run start; returns an exit code only when the server is not started (see settings.py and the artifact specification)."""
    begin = time.monotonic()
    _open_standard_files()
    try:
        settings = parse(argv)
        if settings.mode in ("version", "help"):
            print(USAGE if settings.mode == "help" else "baker start %s" % baker.__version__)
            return 0
        _take_signals()
        if settings.mode == "check":
            return _check_only(settings)
        server = _find_server(settings)
        try:
            _prepare(settings, begin)
        except StartError:
            raise
        except Exception:  # noqa: BLE001 - whatever is wrong with us, policy auto promises that the server starts
            _cold_after_bug(settings)
        _become(server, settings)
    except StartError as error:
        status.say(str(error))
        return error.code
    return 0
