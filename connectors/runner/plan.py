"""A plan: the steps of one Run, cut out of a recorded transcript. Pure: the same bytes and Run give the same steps.

    Say     a message as it was recorded, with the tool calls and results that it holds; then its files are written
    Act     an action at a provider, told before it is sent
    Pause   a wait: for a person, before what the person said is taken in; for a time, where the recording slept

The first prompt is what the Run was accepted with. A step is over once what it tells is accepted and what it writes is written.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from connectors.runner import tools
from connectors.runner.crash import Phase
from connectors.runner.tools import Action, FileWrite
from connectors.sources import claude_records as read
from connectors.sources.bodies import EventBody, Place, Ref, Scalar, encode_body, software_name
from connectors.sources.claude_records import Json
from connectors.sources.files import SourceFile
from connectors.sources.records import LineSplitter, Record, read_record, read_tail
from connectors.sources.tools import ToolCalls

SOURCE_KIND: Final = "claude-code"
HARNESS: Final = "transcript-runner"
HARNESS_REVISION: Final = "1"
STEPS_MAX: Final = 10_000
_PIECE_BYTES: Final = 1 << 20


class Say(Struct, frozen=True, kw_only=True):
    """`lines` are the events as the append route takes them; `record` is the index of the record in its file."""

    index: int
    record: int
    lines: tuple[bytes, ...]
    writes: tuple[FileWrite, ...] = ()


class Act(Struct, frozen=True, kw_only=True):
    index: int
    call_id: str
    action: Action
    digest: str


class Pause(Struct, frozen=True, kw_only=True):
    """`kind` is human or timer. Told with its step as the reason (`mark`), so that whoever reads the log knows which one it is."""

    index: int
    kind: str = "human"

    @property
    def mark(self) -> str:
        return f"step-{self.index}"


Step: TypeAlias = Say | Act | Pause


class Plan(Struct, frozen=True, kw_only=True):
    """`prompt` is the JSON text that the Run is accepted with; `digest` names transcript and cut, and is pinned to the Run."""

    run_id: str
    prompt: bytes
    digest: str
    steps: tuple[Step, ...]


class NoTranscript(Exception):
    """The file holds no prompt of a person, or is no transcript at all."""


def read_records(path: Path) -> list[Record]:
    """The records of a transcript, packed or not; lines that are none are left out. Raises SourceUnusable and OSError."""
    splitter, found = LineSplitter(), list[Record]()
    with SourceFile(path).open() as file:
        while piece := file.read(_PIECE_BYTES):
            found += [record for line in splitter.feed(piece) if isinstance(record := read_record(line), Record)]
    line = splitter.tail()
    tail = None if line is None else read_tail(line)
    return found if tail is None else [*found, tail]


def make_plan(records: Iterable[Record], run_id: str, steps_max: int = STEPS_MAX) -> Plan:
    """Raises `NoTranscript`."""
    messages = [(record, source) for record in records if read.is_message(source := read.mapping(record.value))]
    first = next((place for place, (_, source) in enumerate(messages) if read.is_prompt(source)), None)
    if first is None:
        raise NoTranscript("no prompt of a person")
    prompt = messages[first][0]
    steps = list[Step]()
    for step in _Cutter(run_id).cut(messages[first + 1 :]):
        if len(steps) == steps_max:
            break
        steps.append(step)
    return Plan(run_id=run_id, prompt=prompt.text, digest=transcript_digest(prompt, messages[first + 1 :], steps_max), steps=tuple(steps))


def transcript_digest(prompt: Record, rest: Iterable[tuple[Record, Json]], steps_max: int) -> str:
    named = "\n".join([prompt.digest, *(record.digest for record, _ in rest), str(steps_max)])
    return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"


def points(step: Step) -> tuple[Phase, ...]:
    """The places in a step between which a worker may die, in order."""
    if isinstance(step, Say):
        return (Phase.BEGUN, Phase.TOLD, *([Phase.WRITTEN] if step.writes else []))
    if isinstance(step, Pause):
        return (Phase.BEGUN, Phase.OPENED, Phase.ANSWERED)
    asked = (Phase.ASKED, Phase.DECIDED) if step.action.approval else ()
    return (Phase.BEGUN, *asked, Phase.DISPATCHED, Phase.SENT, Phase.SETTLED)


def writes_of(source: Json) -> tuple[FileWrite, ...]:
    """What the calls of a record write, in order."""
    cwd = read.text(source.get("cwd")) or ""
    found = [
        tools.file_write(read.text(block.get("name")) or "", read.mapping(block.get("input")), cwd)
        for block in _blocks(source, "assistant", "tool_use")
    ]
    return tuple([write for write in found if write is not None])


class _Cutter:
    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._calls = ToolCalls(run_id, "")
        self._index = 0

    def cut(self, messages: Iterable[tuple[Record, Json]]) -> Iterator[Step]:
        for record, source in messages:
            for step in self._steps(record, source):
                yield step
                self._index += 1

    def _steps(self, record: Record, source: Json) -> Iterator[Step]:
        if read.is_prompt(source):
            yield Pause(index=self._index)
        called = [(self._calls.called(read.text(block.get("id")) or ""), block) for block in _blocks(source, "assistant", "tool_use")]
        named = [(call_id, read.text(block.get("name")) or "", read.mapping(block.get("input"))) for call_id, block in called]
        yield Say(index=self._index, record=record.index, lines=self._lines(record, source, called), writes=writes_of(source))
        for call_id, name, given in named:
            action = tools.action(call_id, name, given)
            if tools.waits_for_a_time(name, given):
                yield Pause(index=self._index, kind="timer")
            if action is not None:
                digest = f"sha256:{hashlib.sha256(action.text).hexdigest()}"
                yield Act(index=self._index, call_id=call_id, action=action, digest=digest)
            elif tools.asks_a_person(name):
                yield Pause(index=self._index)

    def _lines(self, record: Record, source: Json, called: list[tuple[str, Json]]) -> tuple[bytes, ...]:
        place = Place(run_id=self._run_id)
        message: dict[str, Scalar | None] = {
            "role": read.role(source), "model": read.model(source), **read.usage(source), "source_kind": SOURCE_KIND,
            "source_record_kind": read.record_kind(source), "source_index": record.index, "source_digest": record.digest,
        }  # fmt: skip
        events: list[EventBody] = [place.event("message.appended", message, content=record.text)]
        cause = ("cause", Ref(record.index))
        for call_id, block in called:
            attributes: dict[str, Scalar | None] = {"call_id": call_id, "name": software_name(block.get("name"))}
            events.append(place.event("tool.called", attributes, links=[cause]))
        for block in _blocks(source, "user", "tool_result"):
            call_id, gap = self._calls.returned(read.text(block.get("tool_use_id")) or "")
            told: dict[str, Scalar | None] = {"call_id": call_id, "is_error": block.get("is_error") is True, "gap": gap}
            events.append(place.event("tool.returned", told, links=[cause] if gap else [cause, ("call", call_id)]))
        return tuple([encode_body(event, {record.index: 0}, {}) for event in events])


def _blocks(source: Json, record_type: str, block_type: str) -> list[Json]:
    return list(read.blocks(source, block_type)) if source.get("type") == record_type else []
