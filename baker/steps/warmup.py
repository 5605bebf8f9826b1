"""Warm-up of one strategy: rounds from wiped roots until one adds no file, or evidence that fells the strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from baker.caches.bytecode import MISSING_SHARE, missing_share
from baker.errors import MachineError
from baker.inside.job import JobResult
from baker.pack.tree import inventory
from baker.spec import Strategy
from baker.steps import partial
from baker.steps.changes import Changes
from baker.steps.facts import builder_facts, same_machine
from baker.steps.jobs import Bed, make_job, server_env
from baker.steps.partial import Rounds
from baker.steps.rounds import changes_of, record, reference_tokens, require_ok, uncounted
from baker.steps.work import read_json, write_json

MAX_ROUNDS = 4  # design 5.6


@dataclass(frozen=True, slots=True)
class Fallen:
    """A strategy that does not ship, with the evidence: log lines and files, as they were seen."""

    strategy: str
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Warmed:
    """A strategy that reached its fixpoint: the tree is at `tree/<kind>`."""

    strategy: Strategy
    kinds: tuple[str, ...]
    tree: Path
    rounds: tuple[dict[str, Any], ...]
    tokens: list[list[int]]
    facts: Mapping[str, Any]  # of the machine that warmed it


def warm(bed: Bed, strategy: Strategy, say: Callable[[str], None], kinds: tuple[str, ...]) -> Warmed | Fallen:
    """Run rounds. What an earlier run of this build finished is taken from the work directory, checked against its inventory."""
    home = bed.work.strategy(strategy.name)
    if (document := read_json(home / "fallen.json", sealed=True)) is not None:
        say(f"strategy {strategy.name}: fell in an earlier run: {document['reason']}")
        return Fallen(**document)
    facts = builder_facts(bed)
    if (done := _resume(home, strategy, facts)) is not None:
        say(f"strategy {strategy.name}: warmed in an earlier run, tree intact")
        return done
    outcome = _rounds(bed, strategy, say, kinds, home, facts)
    if isinstance(outcome, Fallen):
        write_json(home / "fallen.json", outcome.document(), sealed=True)
        partial.forget(home)
    return outcome


def _resume(home: Path, strategy: Strategy, facts: Mapping[str, Any]) -> Warmed | None:
    document = read_json(home / "tree.json", sealed=True)
    if document is None or not same_machine(document.get("facts"), facts):
        return None
    kinds = tuple(document["kinds"])
    try:
        if any(inventory(home / "tree" / kind) != document["inventory"][kind] for kind in kinds):
            return None
    except MachineError:
        return None  # something else stands there now
    return Warmed(strategy, kinds, home / "tree", tuple(document["rounds"]), document["tokens"], facts)


def _rounds(
    bed: Bed, strategy: Strategy, say: Callable[[str], None], kinds: tuple[str, ...], home: Path, facts: Mapping[str, Any]
) -> Warmed | Fallen:
    done = partial.take_back(home, bed.place, facts)
    if done is not None:
        say(f"strategy {strategy.name}: going on after round {len(done.records)} of an earlier run")
    state = done or Rounds(tuple(kind for kind in kinds if kind != "bytecode"), facts)
    try:
        return _until_fixpoint(bed, strategy, say, kinds, home, state)
    except BaseException:
        if state.records:
            with suppress(MachineError):  # no room: the tree stays at the root, where the next run looks too
                bed.place.stash(state.kinds, home / "partial")
        raise


def _until_fixpoint(bed: Bed, strategy: Strategy, say: Callable[[str], None], kinds: tuple[str, ...], home: Path, state: Rounds) -> Warmed | Fallen:
    for number in range(len(state.records) + 1, MAX_ROUNDS + 1):
        bed.work.state("warm-up", strategy=strategy.name, round=number)
        say(f"strategy {strategy.name}: round {number}: starting the server")
        result = _play(bed, strategy, state.kinds, number, state.facts)
        changes = changes_of(result, state.kinds, bed.runtime, bed.plan.interpreter)
        state.records.append(record(number, result, changes))
        state.live = {kind: result.after.get(f"live/{kind}", {}) for kind in state.kinds}
        say(f"strategy {strategy.name}: round {number}: {_summary(result, changes)}")
        for line in uncounted(result):
            say(f"strategy {strategy.name}: round {number}: not counted: {line}")
        if fallen := _refused(strategy, state.records):
            return fallen
        if number == 1:
            state.tokens = reference_tokens(result)
            if "bytecode" in kinds and _wants_bytecode(bed, result, say):
                state.kinds, state.live = ("bytecode", *state.kinds), {"bytecode": {}, **state.live}
        elif changes.count == 0:
            return _stash(bed, strategy, state, home)
        partial.save(home, state)
    last = state.records[-1]["files"]
    paths = last["new"] + last["changed"] + last["gone"]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return Fallen(
        strategy.name,
        f"no fixpoint after {MAX_ROUNDS} rounds: each start still adds or changes files, the last one {', '.join(paths[:3])}{more}",
        {"files": [r["files"] for r in state.records[1:]], "last": paths[:20]},
    )


def _play(bed: Bed, strategy: Strategy, kinds: tuple[str, ...], number: int, facts: Mapping[str, Any]) -> JobResult:
    for kind in kinds:
        bed.place.live(kind)
    bed.place.link_driver(str(facts.get("cuda.library") or ""))
    env = server_env(bed.plan, strategy, kinds)
    if number == 1:
        # The first start must not repair the base's byte code before it was judged.
        env["PYTHONDONTWRITEBYTECODE"] = "1"
    name = f"{strategy.name}-round-{number}"
    refused = [w.name for w in bed.runtime.watch(bed.runtime.version(bed.plan.interpreter)) if w.kind == "refused"]
    job = make_job(
        bed,
        name=name,
        env=env,
        stages=[*bed.script.stages, bed.script.reference],
        kinds=kinds,
        stop_on=refused if number > 1 else (),
        record=True,
    )
    result = bed.place.run(job, name=name)
    require_ok(result, name=f"round {number} of strategy {strategy.name}", log=job.log)
    return result


def _refused(strategy: Strategy, records: Sequence[Mapping[str, Any]]) -> Fallen | None:
    """Two starts in a row that refused what the start before them wrote: once may be a torn write, twice is every start."""
    last = [[line["text"] for line in record["lines"] if line["kind"] == "refused"] for record in records[-2:]]
    if len(last) < 2 or not all(last):
        return None
    files = [record["files"] for record in records[-2:]]
    return Fallen(
        strategy.name,
        f"rounds {len(records) - 1} and {len(records)}: each start refused what the start before it wrote, and wrote it again",
        {
            "refused": [lines[0][-500:] for lines in last],
            "changed": sorted(set(files[0]["changed"]) & set(files[1]["changed"])),
            "new": files[1]["new"],
        },
    )


def _wants_bytecode(bed: Bed, result: JobResult, say: Callable[[str], None]) -> bool:
    interpreter = bed.plan.interpreter
    share = missing_share(result.modules, f"cpython-{interpreter.abi.split('-')[1]}", bytes.fromhex(interpreter.magic))
    if share > MISSING_SHARE:
        say(f"{share:.0%} of the {len(result.modules)} imported modules have no valid byte code: kind bytecode is baked")
    return share > MISSING_SHARE


def _summary(result: JobResult, changes: Changes) -> str:
    if any(line.kind == "refused" for line in result.lines):
        verdict = "a cached artifact was REFUSED"
    else:
        verdict = f"{len(changes.new)} new, {len(changes.changed)} changed files, {len(result.events)} compile events"
    init = next((line.value for line in result.lines if line.name == "engine-init"), None)
    return f"ready after {result.ready_s or 0:.1f} s" + (f" (engine init {init:.1f} s)" if init is not None else "") + f": {verdict}"


def _stash(bed: Bed, strategy: Strategy, state: Rounds, home: Path) -> Warmed:
    tree = home / "tree"
    bed.place.stash(state.kinds, tree)
    try:
        trees = {kind: inventory(tree / kind) for kind in state.kinds}
        write_json(
            home / "tree.json",
            {"kinds": state.kinds, "inventory": trees, "rounds": state.records, "tokens": state.tokens, "facts": dict(state.facts)},
            sealed=True,
        )
    except BaseException:
        bed.place.restore(state.kinds, tree)  # a tree without its inventory counts for nothing; whole rounds do
        raise
    partial.forget(home)
    return Warmed(strategy, state.kinds, tree, tuple(state.records), state.tokens, state.facts)
