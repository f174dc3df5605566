"""Parts: one file's (or trajectory's) way into a session. Where reading stands, what was sent, under which event ids."""

from collections.abc import Iterator
from typing import BinaryIO, Protocol

from connectors.sources.bodies import Group
from connectors.sources.claude_code import ClaudeCodeMapper
from connectors.sources.files import PlannedSession, SourceFile, read_some
from connectors.sources.records import Broken, LineSplitter, Record, SourceChanged, broken, read_record, read_tail
from connectors.sources.runs import agent_thread
from connectors.sources.tau_bench import SOURCE_KIND as TAU_BENCH
from connectors.sources.tau_bench import Trajectory, map_trajectory

_CHUNK_BYTES = 1024 * 1024


class Part(Protocol):
    """`name` is the file's path; `thread_id` is set where all of it is one thread; `bytes_read` counts unpacked bytes."""

    name: str
    source_kind: str
    thread_id: str | None
    progress: "PartProgress"
    bytes_read: int

    def advance(self, *, final: bool) -> Iterator[Group | Broken]:
        """What came since the last call. `final`: nothing more will come, so a last line that is cut is broken."""
        ...

    def close(self) -> None: ...


class PartProgress:
    """What of a part is in the log already, and the checks that it is the same source still."""

    def __init__(self) -> None:
        self.cursor = -1
        """Index of the last record in the log."""
        self.event_ids: dict[int, str] = {}
        self.digests: dict[int, str] = {}
        self.read_to = -1
        self._passed: dict[int, str] = {}

    def includes(self, item: Group | Broken) -> bool:
        """Whether the log holds this record. Raises SourceChanged where it holds another in its place."""
        self.read_to = max(self.read_to, item.index)
        if item.index > self.cursor:
            return False
        if isinstance(item, Group):
            self._passed[item.index] = item.digest
            self._compare(item.index, item.digest)
        return True

    def check_passed(self) -> None:
        """Raises SourceChanged where a record that was passed is another in the log, now that the log was read."""
        for index, digest in self._passed.items():
            self._compare(index, digest)

    def _compare(self, index: int, digest: str) -> None:
        if self.digests.get(index, digest) != digest:
            raise SourceChanged(f"record {index} is not the one that was ingested")

    def check_reached(self) -> None:
        """Raises SourceChanged where the source ended before what the log holds of it."""
        if self.read_to < self.cursor:
            raise SourceChanged(f"ends at record {self.read_to}, but {self.cursor} was ingested")


class TranscriptPart:
    """A transcript, read line by line; a plain file may grow between two calls."""

    def __init__(self, session_id: str, file: SourceFile, agent_id: str | None = None, *, alone: bool = True) -> None:
        self.name = str(file)
        self._file = file
        self._handle: BinaryIO | None = None
        self._size = 0
        self._splitter = LineSplitter()
        self._mapper = ClaudeCodeMapper(session_id, agent_id, alone=alone)
        self.source_kind = self._mapper.source_kind
        self.thread_id = None if agent_id is None else agent_thread(session_id, agent_id)
        self.progress = PartProgress()
        self.bytes_read = 0

    def advance(self, *, final: bool) -> Iterator[Group | Broken]:
        """Raises SourceUnusable and SourceChanged; everything before the place in question has come out by then."""
        if self._handle is None:
            self._handle = self._file.open()
        before, self._size = self._size, self._file.size()
        if self._size < before:
            raise SourceChanged("the file became shorter")
        while piece := read_some(self._handle, _CHUNK_BYTES):
            self.bytes_read += len(piece)
            for line in self._splitter.feed(piece):
                yield self._mapped(read_record(line))
        tail = self._splitter.tail()
        if tail is None:
            return
        whole = read_tail(tail)
        if whole is not None:
            self._splitter.take_tail()
            yield self._mapped(whole)
        elif final:
            yield broken(tail, "cut")

    def _mapped(self, record: Record | Broken) -> Group | Broken:
        return record if isinstance(record, Broken) else self._mapper.map(record)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class TrajectoryPart:
    """A trajectory: complete from the start."""

    def __init__(self, session_id: str, file: SourceFile, trajectory: Trajectory) -> None:
        self.name = str(file)
        self._groups = map_trajectory(session_id, trajectory)
        self.source_kind = TAU_BENCH
        self.thread_id: str | None = None
        self.progress = PartProgress()
        self.bytes_read = sum(len(record.text) for record in trajectory.records)

    def advance(self, *, final: bool) -> Iterator[Group | Broken]:
        del final
        groups, self._groups = self._groups, []
        yield from groups

    def close(self) -> None:
        """Nothing is open."""


def parts_of(plan: PlannedSession, session_id: str) -> list[Part]:
    """The parts of a session in the order in which they are sent."""
    if plan.trajectory is not None:
        return [TrajectoryPart(session_id, plan.file, plan.trajectory)]
    alone = any(file == plan.file for _, file in plan.agents)
    agents: list[Part] = [TranscriptPart(session_id, file, agent_id, alone=alone) for agent_id, file in plan.agents]
    return agents if alone else [TranscriptPart(session_id, plan.file), *agents]
