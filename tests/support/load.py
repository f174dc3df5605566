"""Load with a memory: writers append uniquely marked messages to their sessions and note how each command ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streams.errors import StreamsError
from streams.log.log import KafkaLog
from streams.log.record import decode_event
from streams.log.topics import Topics
from streams.session.outcomes import ACCEPTED
from streams.settings import Settings
from tests.consistency.history import Append, End, History, Logged
from tests.support.asker import Asker
from tests.support.commands import append_messages, create_session, new_id, new_marker

PAUSE_S = 0.02
"""A writer's, between two commands: what is killed and started meanwhile needs the processors as well."""


class Load:
    """`sessions` sessions, one writer thread each, commands of 1 to 3 messages one after the other."""

    def __init__(self, settings: Settings, *, sessions: int = 8) -> None:
        self.history = History()
        self._settings = settings
        self._asker = Asker(settings)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.session_ids = [new_id("sess") for _ in range(sessions)]
        self._threads = [threading.Thread(target=self._write, args=(session_id,), daemon=True) for session_id in self.session_ids]
        self._reader = threading.Thread(target=self._poll, daemon=True)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Writers and a live consumer run inside; at the end the writers have been answered or have given up."""
        for thread in (*self._threads, self._reader):
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in (*self._threads, self._reader):
                thread.join()
            self._asker.close()

    def accepted(self) -> int:
        with self._lock:
            return sum(append.end is End.OK for append in self.history.appends)

    def finish(self) -> History:
        """The whole history, once the log is quiet."""
        self.history.log = read_events(self._settings)
        return self.history

    def _write(self, session_id: str) -> None:
        self._note(self._asker.ask(create_session(session_id)), session_id, "", ())
        size = 0
        while not self._stop.wait(PAUSE_S):
            size = size % 3 + 1
            markers = tuple(new_marker() for _ in range(size))
            command = append_messages(session_id, markers)
            self._note(self._asker.ask(command), session_id, command.command_id, markers)

    def _note(self, outcome: object, session_id: str, command_id: str, markers: tuple[bytes, ...]) -> None:
        if not markers:
            return
        if outcome is None:
            append = Append(command_id, session_id, markers, End.UNKNOWN)
        else:
            end = End.OK if outcome.status == ACCEPTED else End.FAIL  # type: ignore[attr-defined]
            append = Append(command_id, session_id, markers, end, outcome.first_sequence, outcome.last_sequence)  # type: ignore[attr-defined]
        with self._lock:
            self.history.appends.append(append)

    def _poll(self) -> None:
        topic = Topics(self._settings.topic_prefix).events
        reader = KafkaLog(self._settings).reader("live", {(topic, partition): 0 for partition in range(self._settings.partitions)})
        seen = self.history.polls.setdefault("live", [])
        while not self._stop.is_set():
            try:
                records = reader.read(1000, 0.1)
            except StreamsError:
                continue  # a broker that restarts under it; what it saw before is judged all the same
            seen.extend(logged(record) for record in records)
        reader.close()


def logged(record: object) -> Logged:
    event = decode_event(record.value)  # type: ignore[attr-defined]
    return Logged(record.partition, record.offset, event, event.content.ciphertext or b"")  # type: ignore[attr-defined]


def read_events(settings: Settings) -> list[Logged]:
    """All committed events, in partition order, up to the high watermark as it is now."""
    log, topic = KafkaLog(settings), Topics(settings.topic_prefix).events
    places = [(topic, partition) for partition in range(settings.partitions)]
    ends = log.end_offsets(places, committed=False)
    reader = log.reader("all", dict.fromkeys(places, 0))
    found: list[Logged] = []
    while any(reader.position(*place) < end for place, end in ends.items()):
        found.extend(logged(record) for record in reader.read(5000, 0.2))
    reader.close()
    return sorted(found, key=lambda entry: (entry.partition, entry.offset))
