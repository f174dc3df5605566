"""The fold over a store in memory: what the rows say, and that nothing but the events decides them."""

import random

import pytest
from structlog.testing import capture_logs

from streams.log.reader import Record
from streams.projections.fold import COMMANDS, EVENTS, Fold
from streams.projections.sessions import SourceCursor, decode_row, row_key
from streams.projections.tables import OwnedTable, Tables
from streams.projections.transcript import event_key, events_prefix, markers, sequence_of
from streams.store.memory import MemoryStore
from streams.store.table import Put
from tests.support.event_log import NOON, WORKSPACE, EventLog, session_id
from tests.support.examples import made_up_id

SUBJECT = made_up_id("subj")


def table() -> OwnedTable:
    return Tables(10).add(0, MemoryStore())


def a_long_log(seed: int = 1) -> EventLog:
    """Sessions of every kind, interleaved; some records cannot be read."""
    chance = random.Random(seed)
    log = EventLog()
    sessions = [log.create(label, subject_id=SUBJECT if label % 2 else None) for label in range(8)]
    for number in range(200):
        session = chance.choice(sessions)
        log.say(session, chance.randint(1, 4), ciphertext=chance.randbytes(100))
        if number % 17 == 0:
            log.source(session, number)
        if number % 41 == 0:
            log.append(session.encode(), b"\x00\x00\x00\x00\x01 no event")
            log.skip(session)
    log.close(sessions[0])
    return log


def test_a_row_tells_what_the_events_of_its_session_tell() -> None:
    log, owned = EventLog(), table()
    session = log.create("a", subject_id=SUBJECT)
    log.say(session, 3)
    log.source(session, 4, "sha256:" + "4" * 64)
    log.source(session, 2, "sha256:" + "2" * 64)
    log.close(session)
    Fold().apply(owned, log.records)
    row = decode_row(owned.store.get(row_key(session)) or b"")
    assert (row.session_id, row.workspace_id, row.subject_id) == (session, WORKSPACE, SUBJECT)
    assert (row.status, row.origin, row.policy_mode, row.content_window_days) == ("closed", "live", "standard", 30)
    assert (row.created_at, row.last_accepted_at, row.sequence) == (NOON, NOON + 6000, 7)
    assert row.counts == {"session.created": 1, "message.appended": 3, "source.recorded": 2, "session.closed": 1}
    assert row.source == SourceCursor("claude-code", 4, "sha256:" + "4" * 64)
    assert row.last_command_offset == log.commands - 2


def test_the_transcript_holds_the_bytes_of_the_log_in_the_order_of_sequences() -> None:
    log, owned = EventLog(), table()
    session, other = log.create("a"), log.create("b")
    log.say(session, 2, ciphertext=b"x" * 50)
    log.say(other)
    log.say(session, 300)
    Fold().apply(owned, log.records)
    with owned.store.scan(events_prefix(session)) as rows:
        found = [(sequence_of(key), value) for key, value in rows]
    own = [record.value for record in log.records if record.key == session.encode()]
    assert found == list(enumerate(own, 1))


def test_batches_may_be_cut_anywhere() -> None:
    """One batch, many, one a record: the same rows, the same offsets."""
    log = a_long_log()
    digests, offsets = set(), set()
    for seed in (None, 0, 1, 2):
        owned, chance, rest = table(), random.Random(seed), list(log.records)
        while rest:
            size = len(rest) if seed is None else chance.randint(1, 1 + 20 * seed)
            Fold().apply(owned, rest[:size])
            rest = rest[size:]
        digests.add(owned.store.digest())
        offsets.add(tuple(sorted(owned.store.offsets().items())))
    assert len(digests) == 1
    assert offsets == {((COMMANDS, log.commands - 1), (EVENTS, log.records[-1].offset + 1))}


def test_a_failed_write_leaves_nothing_behind() -> None:
    """The disk refuses a batch; the same records applied again give what an undisturbed table has."""

    class Refusing(MemoryStore):
        refuses = False

        def write(self, puts: object, offsets: object) -> None:
            if self.refuses:
                raise OSError("no")
            super().write(puts, offsets)  # type: ignore[arg-type]

    log, undisturbed = a_long_log(), table()
    Fold().apply(undisturbed, log.records)
    store = Refusing()
    owned = Tables(10).add(0, store)
    fold = Fold()
    for start in range(0, len(log.records), 50):
        batch = log.records[start : start + 50]
        before = (owned.position, owned.commands, store.digest())
        store.refuses = True
        with pytest.raises(OSError, match="no"):
            fold.apply(owned, batch)
        assert (owned.position, owned.commands, store.digest()) == before
        store.refuses = False
        fold.apply(owned, batch)
    assert store.digest() == undisturbed.store.digest()


def test_a_command_counts_as_applied_with_its_last_event_only() -> None:
    log, owned = EventLog(), table()
    session = log.create("a")
    first = log.commands
    log.say(session, 3)
    Fold().apply(owned, log.records[:3])
    assert owned.commands == first - 1
    Fold().apply(owned, log.records[3:])
    assert owned.commands == log.commands - 1
    assert owned.store.offsets() == {EVENTS: log.records[-1].offset + 1, COMMANDS: log.commands - 1}


def broken(log: EventLog, session: str) -> list[tuple[str, Record]]:
    good = log.records[-1].value
    assert good is not None
    other = session_id("other").encode()
    return [
        ("wire", log.append(session.encode(), b"")),
        ("wire", log.append(session.encode(), b"\x07" + good[1:])),
        ("wire", log.append(session.encode(), b"\x00\xff\xff\xff\xff" + good[5:])),
        ("", log.append(session.encode(), good[:-9])),
        ("value.absent", log.append(session.encode(), None)),
        ("key.misplaced", log.append(other, good)),
        ("key.misplaced", log.append(None, good)),
        ("sequence.repeated", log.append(session.encode(), good)),
    ]


def test_what_cannot_be_read_is_marked_logged_and_passed() -> None:
    log, owned = EventLog(), table()
    session = log.create("a")
    log.say(session)
    bad = broken(log, session)
    log.say(session)
    with capture_logs() as lines:
        applied = Fold().apply(owned, log.records)
    assert applied.unreadable == owned.unreadable == len(bad)
    assert [line["offset"] for line in lines if line["event"] == "record_unreadable"] == [record.offset for _, record in bad]
    row = decode_row(owned.store.get(row_key(session)) or b"")
    assert row.sequence == 3
    assert row.counts["message.appended"] == 2
    found = markers(owned.store, session, 0, 99)
    own = [(reason, record) for reason, record in bad if record.key == session.encode()]
    assert [marker.offset for marker in found] == [record.offset for _, record in own]
    assert {marker.after_sequence for marker in found} == {2}
    for marker, (reason, _) in zip(found, own, strict=True):
        assert marker.reason.startswith(reason)
    with owned.store.scan(b"x/") as rows:
        assert len(list(rows)) == 1
    assert owned.store.get(event_key(session, 2)) == log.records[1].value


def test_a_session_whose_first_event_cannot_be_read_has_a_row_from_its_next_one() -> None:
    log, owned = EventLog(), table()
    session = log.create("a")
    lost = log.records.pop()
    log.append(lost.key, b"\x00lost")
    log.say(session)
    Fold().apply(owned, log.records)
    row = decode_row(owned.store.get(row_key(session)) or b"")
    assert (row.sequence, row.status, row.origin, row.policy_mode) == (2, "open", None, None)


def test_rows_hold_no_content() -> None:
    log, owned = EventLog(), table()
    session = log.create("a", subject_id=SUBJECT)
    log.say(session, ciphertext=b"CANARY" * 10)
    Fold().apply(owned, log.records)
    with owned.store.scan(b"") as rows:
        holding = [key[:2] for key, value in rows if b"CANARY" in value or b"CANARY" in key]
    assert holding == [b"e/"]


def test_the_version_of_the_layout_follows_every_projection() -> None:
    class Later:
        name, version = "later", 5

        def begin(self, rows: object) -> object:
            raise AssertionError

    assert Fold((Later(),)).version > Fold(()).version  # type: ignore[arg-type]
    assert Fold().version == 7


def test_puts_of_a_batch_write_each_row_once() -> None:
    log = a_long_log()
    seen: list[bytes] = []

    class Watching(MemoryStore):
        def write(self, puts: object, offsets: object) -> None:
            taken: list[Put] = list(puts)  # type: ignore[call-overload]
            seen.extend(key for key, _ in taken)
            super().write(taken, offsets)  # type: ignore[arg-type]

    Fold().apply(Tables(10).add(0, Watching()), log.records)
    assert len(seen) == len(set(seen))
