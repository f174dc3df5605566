"""Claude-Code transcripts: records in, groups of event bodies out.

Rules upheld here:

- the mapping is a fold over the records of one file: the same bytes give the same groups, however they were cut;
- each record gives exactly one content-bearing event, `message.appended` for what holds a message of a user, a model
  or a tool, `source.recorded` for every other kind; everything derived carries no content;
- a parent is resolved among the records before it; what the source lacks is a typed gap;
- the last Run stays open at the end of a file: the transcript may grow.

Threads and children: agents at work show as `progress/agent_progress` records; the first of an agent starts child work, the result
of the tool call that it works for settles it. Sidechain records, and agent files as a whole, stand in a thread of
their own and open no Turn.
"""

from collections import defaultdict

from msgspec import Struct, structs

from connectors.sources import claude_records as read
from connectors.sources.bodies import EventBody, Group, Place, Ref, Scalar, outside_id, software_name
from connectors.sources.claude_records import Json
from connectors.sources.records import Record
from connectors.sources.runs import ImportedRun, agent_thread, main_thread, thread_opened
from connectors.sources.tools import ToolCalls

SOURCE_KIND = "claude-code"
AGENT_SOURCE_KIND = "claude-code-agent"
PARENT_MISSING = "parent_missing"

Links = list[tuple[str, str | Ref]]


class _Child(Struct):
    """Child work of an agent: the Run that it belongs to, and the source's id of the tool call that it serves."""

    child_id: str
    run: ImportedRun
    tool_id: str | None
    settled: bool = False


class ClaudeCodeMapper:
    """State of one file.

    Args:
        agent_id: given where the file is an agent's: all of it is one thread then.
        alone: whether the file is the first of its session, which opens the main thread.
    """

    def __init__(self, session_id: str, agent_id: str | None = None, *, alone: bool = True) -> None:
        self._session_id = session_id
        self._agent_id = agent_id
        self._scope = "" if agent_id is None else f"agent:{agent_id}"
        self.source_kind = SOURCE_KIND if agent_id is None else AGENT_SOURCE_KIND
        self._index_of: dict[str, int] = {}
        self._occurrences: defaultdict[str, int] = defaultdict(int)
        self._tools = ToolCalls(session_id, self._scope)
        self._children: dict[str, _Child] = {}
        self._main = main_thread(session_id)
        self._sidechain_of: dict[str, str] = {}
        self._opened: set[str] = set() if alone else {self._main}
        self._counted: dict[str, dict[str, int]] = {}
        self._run: ImportedRun | None = None
        self._interrupted = False

    def map(self, record: Record) -> Group:
        """The events of the next record. Records are to come in order, none twice."""
        source = read.mapping(record.value)
        before = self._open_thread(source, self._main)
        before += self._turn_change(source, record)
        thread_id = self._thread(source, before)
        now = read.occurred_at(source)
        place = Place(occurred_at=now) if self._run is None else self._run.place(now)
        place = structs.replace(place, thread_id=thread_id)
        links, gap = self._parents(source)
        after = self._tool_events(source, place, record.index)
        links += self._tool_links(source)
        after += self._child_events(source, place, links)
        content = self._content_event(source, record, place, links, gap)
        self._remember(source, record, thread_id)
        return Group(record.index, record.digest, (*before, content, *after), len(before))

    def _content_event(self, source: Json, record: Record, place: Place, links: Links, gap: str | None) -> EventBody:
        attributes: dict[str, Scalar | None] = {
            "source_kind": self.source_kind,
            "source_record_kind": read.record_kind(source),
            "source_index": record.index,
            "source_digest": record.digest,
            "source_gap": gap,
        }
        if not read.is_message(source):
            return place.event("source.recorded", attributes, links=links, content=record.text)
        message = {"role": read.role(source), "model": read.model(source), **self._new_tokens(source)}
        return place.event("message.appended", {**message, **attributes}, links=links, content=record.text)

    # Turns and Runs

    def _turn_change(self, source: Json, record: Record) -> list[EventBody]:
        if self._agent_id is not None:
            return []
        if not read.is_prompt(source):
            if read.is_interruption(source):
                self._interrupted = True
            elif source.get("type") == "assistant":
                self._interrupted = False
            return []
        now = read.occurred_at(source)
        ended = self._run.settling(now, interrupted=self._interrupted) if self._run else []
        self._run = ImportedRun.named(self._session_id, *self._key(source, record))
        self._interrupted = False
        return [*ended, *self._run.opening(now, SOURCE_KIND, software_name(source.get("version")))]

    def _key(self, source: Json, record: Record) -> tuple[str, str]:
        """What names a record for good: its uuid, else its digest; and its occurrence."""
        key = read.text(source.get("uuid")) or record.digest
        return key, str(self._occurrences[key])

    def _remember(self, source: Json, record: Record, thread_id: str) -> None:
        key, _ = self._key(source, record)
        self._occurrences[key] += 1
        uuid = read.text(source.get("uuid"))
        if uuid is not None:
            self._index_of[uuid] = record.index
            if thread_id != self._main:
                self._sidechain_of[uuid] = thread_id

    # Threads

    def _thread(self, source: Json, before: list[EventBody]) -> str:
        """The thread that the record stands in; opened in `before` at its first record."""
        agent_id = self._agent_id
        if agent_id is None and source.get("isSidechain") is not True:
            return self._main
        agent_id = agent_id or read.text(source.get("agentId"))
        if agent_id is not None:
            thread_id, child_id = agent_thread(self._session_id, agent_id), self._child_id(agent_id)
        else:
            # Without an agent's id a sidechain is known by its first record.
            first = self._sidechain_of.get(read.text(source.get("parentUuid")) or "")
            thread_id = first or outside_id("sthr", self._session_id, "sidechain", read.text(source.get("uuid")) or "")
            child_id = None
        before += self._open_thread(source, thread_id, self._main, child_id)
        return thread_id

    def _open_thread(self, source: Json, thread_id: str, parent_id: str | None = None, child_id: str | None = None) -> list[EventBody]:
        if thread_id in self._opened:
            return []
        self._opened.add(thread_id)
        return [thread_opened(thread_id, parent_id, read.occurred_at(source), child_id)]

    # Parents, tools, children

    def _parents(self, source: Json) -> tuple[Links, str | None]:
        parent = read.text(source.get("parentUuid"))
        if parent is not None:
            index = self._index_of.get(parent)
            return ([], PARENT_MISSING) if index is None else ([("parent_event", Ref(index))], None)
        # A compaction begins a new chain and tells what it goes on from; that may lie in another file.
        earlier = self._index_of.get(read.text(source.get("logicalParentUuid")) or "")
        return ([], None) if earlier is None else ([("cause", Ref(earlier))], None)

    def _tool_events(self, source: Json, place: Place, index: int) -> list[EventBody]:
        events: list[EventBody] = []
        if source.get("type") == "assistant":
            for block in read.blocks(source, "tool_use"):
                call_id = self._tools.called(read.text(block.get("id")) or "")
                attributes: dict[str, Scalar | None] = {"call_id": call_id, "name": software_name(block.get("name"))}
                events.append(place.event("tool.called", attributes, links=[("cause", Ref(index))]))
        elif source.get("type") == "user":
            for block in read.blocks(source, "tool_result"):
                tool_id = read.text(block.get("tool_use_id")) or ""
                is_error = block.get("is_error") is True
                call_id, gap = self._tools.returned(tool_id)
                links: Links = [("cause", Ref(index))] if gap else [("cause", Ref(index)), ("call", call_id)]
                attributes = {"call_id": call_id, "is_error": is_error, "gap": gap}
                events.append(place.event("tool.returned", attributes, links=links))
                if read.mapping(source.get("toolUseResult")).get("status") != "async_launched":
                    events += self._settle_children(tool_id, place, "failed" if is_error else "completed")
        return events

    def _tool_links(self, source: Json) -> Links:
        """A progress record belongs to the call that it tells of."""
        call_id = self._tools.known(source.get("parentToolUseID"))
        return [] if call_id is None else [("call", call_id)]

    def _child_events(self, source: Json, place: Place, links: Links) -> list[EventBody]:
        """Adds to `links` what child work the record tells of. Without a Run there is none: nothing has asked for it."""
        agent_id = read.text(read.mapping(source.get("data")).get("agentId"))
        if agent_id is None or self._run is None or read.record_kind(source) != "progress/agent_progress":
            return []
        child = self._children.get(agent_id)
        started: list[EventBody] = []
        if child is None:
            child = _Child(self._child_id(agent_id), self._run, read.text(source.get("parentToolUseID")))
            self._children[agent_id] = child
            attributes: dict[str, Scalar | None] = {"child_id": child.child_id, "kind": "agent", "native": True}
            started = [place.event("child.started", attributes, links=self._tool_links(source))]
        links.append(("child", child.child_id))
        return started

    def _settle_children(self, tool_id: str, place: Place, outcome: str) -> list[EventBody]:
        settled = [child for child in self._children.values() if child.tool_id == tool_id and not child.settled]
        for child in settled:
            child.settled = True
        # A child belongs to the Run that started it, even where its result comes in a later one.
        return [
            child.run.place(place.occurred_at).event("child.settled", {"child_id": child.child_id, "outcome": outcome}) for child in settled
        ]

    def _child_id(self, agent_id: str) -> str:
        return outside_id("chld", self._session_id, agent_id)

    def _new_tokens(self, source: Json) -> dict[str, int]:
        """Token counts that the records of the same answer have not told yet.

        A model's answer comes as several records that repeat its growing usage; only so the sum over events is right.
        """
        tokens = read.usage(source)
        answer = read.text(read.mapping(source.get("message")).get("id"))
        if answer is None or not tokens:
            return tokens
        counted = self._counted.setdefault(answer, {})
        new = {name: max(0, count - counted.get(name, 0)) for name, count in tokens.items()}
        for name, count in tokens.items():
            counted[name] = max(count, counted.get(name, 0))
        return new
