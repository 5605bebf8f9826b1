"""The contract between the builder and the warm-up driver: one Job in (JSON file), one JobResult out (JSON file).

The driver (`python -I -S tools.zip drive JOB.json`) starts one server, waits until one real completion succeeds, plays the stages, ends every
descendant, and writes the result. It exits 0 whenever a result was written, 2 for a job that it cannot read, 128+n for a signal (result written).
Times are seconds on the monotonic clock since the server was spawned; sizes bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Type, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP POST. `prompt_tokens` and `output_tokens` are what `usage` must report, else the request does not count."""

    path: str
    body: Mapping[str, Any]
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Stage:
    """Ordered part of the matrix: `groups` run one after another, the requests of one group at once."""

    name: str
    groups: List[List[Request]]
    keep_tokens: bool = False  # return the token ids, for the equality proof


@dataclass(frozen=True)
class Watch:
    """A rule over the server's log lines (re.search). `kind`: event (a compile), refused, loaded, phase (group 1 is seconds), note."""

    name: str
    kind: str
    pattern: str


@dataclass(frozen=True)
class Job:
    """Everything that one start of a server needs."""

    argv: List[str]
    env: Dict[str, str]  # complete: the driver adds only PYTHONPATH (tools.zip first) and BAKER_RECORD, when `record` is set
    port: int
    ready: Request
    stages: List[Stage]
    log: str  # server's stdout and stderr, masked
    out: str  # JobResult JSON
    roots: Dict[str, str] = field(default_factory=dict)  # name -> directory; inventoried before the spawn and after the end
    watch: List[Watch] = field(default_factory=list)
    stop_on: List[str] = field(default_factory=list)  # names of watch rules: once one matched and the server is ready, end without the stages
    record: str = ""  # directory for <pid>.jsonl; "" = not recorded
    network: str = "host"  # "none": own network namespace with lo up, where permitted
    uid: Optional[int] = None  # run the server as this UID, group 0, where permitted
    cwd: str = "/"
    ready_s: float = 1800.0
    request_s: float = 600.0
    deadline_s: float = 7200.0
    grace_s: float = 10.0
    mask: List[str] = field(default_factory=list)  # names of variables whose values never reach a log or result
    once: bool = False  # a program that ends by itself: port, ready and stages mean nothing


@dataclass(frozen=True)
class RequestResult:
    """One played request; `why` says what kept it from counting."""

    counted: bool
    status: int
    ttft_s: float
    total_s: float
    prompt_tokens: int
    output_tokens: int
    tokens: List[int] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True)
class StageResult:
    """The requests of one stage in the order of the job, groups flattened."""

    name: str
    requests: List[RequestResult]


@dataclass(frozen=True)
class Line:
    """A log line that a Watch matched; `stage` is where it fell ("start" before ready)."""

    name: str
    kind: str
    text: str
    at_s: float
    stage: str
    value: Optional[float] = None


@dataclass(frozen=True)
class Event:
    """A compile event that the recorder saw: kind is triton-compile, inductor-miss, inductor-bypass, or child-compiler."""

    kind: str
    pid: int
    detail: str
    stage: str
    at_s: float


@dataclass(frozen=True)
class Process:
    """A process of the server's tree. `torch` = libtorch mapped; `observed` = the recorder reported from it."""

    pid: int
    argv: str
    torch: bool
    observed: bool


@dataclass(frozen=True)
class JobResult:
    """status: ok, died, not-ready, failed (a request), unauthorized, deadline, signal. `error` = first error of the log or reason."""

    status: str
    error: str = ""
    stage: str = ""
    exit_code: Optional[int] = None
    ready_s: Optional[float] = None
    wall_s: float = 0.0
    stages: List[StageResult] = field(default_factory=list)
    lines: List[Line] = field(default_factory=list)
    events: List[Event] = field(default_factory=list)
    processes: List[Process] = field(default_factory=list)
    counters: Dict[str, int] = field(default_factory=dict)  # inductor/aot_autograd counters, summed over processes
    modules: List[str] = field(default_factory=list)  # source files of the modules that the server imported
    # root -> path -> [type, size, sha256 or link target]; type: "file", "link", "other"
    before: Dict[str, Dict[str, List[Any]]] = field(default_factory=dict)
    after: Dict[str, Dict[str, List[Any]]] = field(default_factory=dict)
    network: str = "host"  # what was reached: "none" or "host"
    uid: int = -1  # what the server ran as
    remarks: List[str] = field(default_factory=list)  # what could not be isolated, what had to be killed


def dump(value: Any) -> str:
    """A job or result as JSON text."""
    return json.dumps(asdict(value))


def _build(cls: Type[T], doc: Any) -> T:
    if not isinstance(doc, dict):
        raise ValueError("%s: found %s, expected object" % (cls.__name__, type(doc).__name__))
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    try:
        return cls(**{k: v for k, v in doc.items() if k in known})
    except TypeError as error:
        raise ValueError("%s: %s" % (cls.__name__, error)) from None


def _many(cls: Type[T], docs: Any) -> List[T]:
    if not isinstance(docs, list):
        raise ValueError("%s: found %s, expected list" % (cls.__name__, type(docs).__name__))
    return [_build(cls, doc) for doc in docs]


def load_job(text: str) -> Job:
    """Parse a Job. Raises ValueError that names the offending part."""
    doc = json.loads(text)
    if not isinstance(doc, dict):
        raise ValueError("job: expected object")
    doc = dict(doc)
    doc["ready"] = _build(Request, doc.get("ready"))
    doc["watch"] = _many(Watch, doc.get("watch", []))
    stages = []
    for stage in doc.get("stages", []):
        stage = dict(stage)
        stage["groups"] = [_many(Request, group) for group in stage.get("groups", [])]
        stages.append(_build(Stage, stage))
    doc["stages"] = stages
    return _build(Job, doc)


def load_result(text: str) -> JobResult:
    """Parse a JobResult. Raises ValueError that names the offending part."""
    doc = json.loads(text)
    if not isinstance(doc, dict):
        raise ValueError("result: expected object")
    doc = dict(doc)
    stages = []
    for stage in doc.get("stages", []):
        stage = dict(stage)
        stage["requests"] = _many(RequestResult, stage.get("requests", []))
        stages.append(_build(StageResult, stage))
    doc["stages"] = stages
    doc["lines"] = _many(Line, doc.get("lines", []))
    doc["events"] = _many(Event, doc.get("events", []))
    doc["processes"] = _many(Process, doc.get("processes", []))
    return _build(JobResult, doc)
