"""Questions to tables on disk: rows, pages, listings, gaps, and who may not see what."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streams.errors import Invalid, NotFound, NotOwner, ProjectionBehind, StoreUnusable
from streams.log.record import decode_event
from streams.projections.fold import Fold
from streams.projections.tables import Tables
from streams.query.pages import Gap, ListingCursor
from streams.query.queries import ReadModel
from streams.store.store import Store
from streams.store.table import StoreIdentity
from tests.support.event_log import WORKSPACE, EventLog, in_partition, session_id
from tests.support.examples import made_up_id

PARTITIONS = 2
SUBJECT, OTHER_SUBJECT, OTHER_WORKSPACE = made_up_id("subj", 1), made_up_id("subj", 2), made_up_id("ws", "other")
EVERYTHING = {"after": 0, "limit": 1000, "max_bytes": 1 << 30}


class Owner:
    """Both partitions, filled from two logs, serving."""

    def __init__(self, path: Path) -> None:
        self.tables = Tables(60)
        self.model = ReadModel(self.tables, PARTITIONS)
        self.logs = [EventLog(partition) for partition in range(PARTITIONS)]
        self.stores = []
        for partition in range(PARTITIONS):
            store = Store.open(path / str(partition), StoreIdentity("projector", 1, "c", "t", partition))
            self.stores.append(store)
            table = self.tables.add(partition, store)
            table.answered(self.tables._clock(), 0)
            table.reached(0)

    def apply(self) -> None:
        for partition, log in enumerate(self.logs):
            if log.records:
                Fold().apply(self.tables.owned[partition], log.records)
                log.records.clear()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    for store in owner.stores:
        store.close()


def sequences(events: tuple[bytes, ...]) -> list[int]:
    return [decode_event(value).sequence for value in events]


def test_pages_follow_each_other_and_end_at_the_end(owner: Owner) -> None:
    log = owner.logs[0]
    session = log.create(in_partition(0, PARTITIONS))
    log.say(session, 24)
    owner.apply()
    after, seen = 0, []
    while True:
        page = owner.model.events(WORKSPACE, session, after=after, limit=10, max_bytes=1 << 20)
        assert page.end_sequence == 25
        assert page.gaps == ()
        if not page.events:
            break
        seen += sequences(page.events)
        after = page.next_after
    assert seen == list(range(1, 26))
    assert after == 25
    assert owner.model.events(WORKSPACE, session, after=99, limit=10, max_bytes=1).next_after == 99


def test_a_page_is_bounded_by_bytes_and_one_event_always_fits(owner: Owner) -> None:
    log = owner.logs[0]
    session = log.create(in_partition(0, PARTITIONS))
    log.say(session, 10, ciphertext=b"x" * 10_000)
    owner.apply()
    page = owner.model.events(WORKSPACE, session, after=1, limit=1000, max_bytes=35_000)
    assert sequences(page.events) == [2, 3, 4]
    page = owner.model.events(WORKSPACE, session, after=4, limit=1000, max_bytes=10)
    assert sequences(page.events) == [5]


def test_a_session_is_found_in_its_workspace_and_by_its_subject_only(owner: Owner) -> None:
    log = owner.logs[0]
    label = in_partition(0, PARTITIONS)
    session = log.create(label)
    owner.apply()
    assert owner.model.session(WORKSPACE, session).session_id == session
    absent = session_id(in_partition(0, PARTITIONS, label + 1))
    texts = set()
    for workspace, asked, subject in ((OTHER_WORKSPACE, session, None), (WORKSPACE, absent, None), (WORKSPACE, session, SUBJECT)):
        for question in (owner.model.session, partial(owner.model.events, **EVERYTHING)):
            with pytest.raises(NotFound) as raised:
                question(workspace, asked, subject)
            texts.add((raised.value.code, raised.value.detail.replace(asked, "")))
    assert len(texts) == 1
    hers = log.create(in_partition(0, PARTITIONS, label + 2), subject_id=SUBJECT)
    owner.apply()
    assert owner.model.session(WORKSPACE, hers, SUBJECT) == owner.model.session(WORKSPACE, hers)


def test_listings_run_from_newest_to_oldest_over_all_partitions(owner: Owner) -> None:
    made = []
    for label in range(30):
        session = session_id(label)
        log = owner.logs[owner.model.partition(session)]
        for other in owner.logs:
            other._now = max(each._now for each in owner.logs)
        made.append(log.create(label, subject_id=SUBJECT if label % 3 == 0 else OTHER_SUBJECT))
    owner.apply()
    for subject, expected in ((None, made[::-1]), (SUBJECT, made[::3][::-1])):
        seen: list[str] = []
        cursor = None
        while True:
            page = owner.model.sessions(WORKSPACE, subject, partitions=(0, 1), cursor=cursor, limit=7)
            seen += [row.session_id for row in page.sessions]
            assert len(page.sessions) <= 7
            if page.cursor is None:
                break
            cursor = ListingCursor.parse(page.cursor)
        assert seen == expected
    assert owner.model.sessions(OTHER_WORKSPACE, None, partitions=(0, 1), cursor=None, limit=7).sessions == ()
    exact = owner.model.sessions(WORKSPACE, None, partitions=(0, 1), cursor=None, limit=30)
    assert exact.cursor is None


def test_a_cursor_stays_good_while_sessions_are_made_and_go_on(owner: Owner) -> None:
    log = owner.logs[0]
    labels, label = [], 0
    for _ in range(6):
        label = in_partition(0, PARTITIONS, label + 1)
        labels.append(label)
    made = [log.create(each) for each in labels[:4]]
    owner.apply()
    first = owner.model.sessions(WORKSPACE, None, partitions=(0,), cursor=None, limit=2)
    log.create(labels[4])
    log.say(made[0], 3)
    owner.apply()
    assert first.cursor is not None
    rest = owner.model.sessions(WORKSPACE, None, partitions=(0,), cursor=ListingCursor.parse(first.cursor), limit=10)
    assert [row.session_id for row in (*first.sessions, *rest.sessions)] == made[::-1]


@pytest.mark.parametrize("text", ["", "x", "AAAA", "!!!!", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "A" * 400, "\u00e4" * 32])
def test_a_made_up_cursor_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        ListingCursor.parse(text)


def test_a_record_set_aside_is_told_as_a_gap_where_it_belongs(owner: Owner) -> None:
    log = owner.logs[0]
    session = log.create(in_partition(0, PARTITIONS))
    log.say(session, 2)
    bad = log.append(session.encode(), b"\x00\x00\x00\x00\x00")
    log.skip(session)
    log.say(session, 2)
    log.skip(session, 2)
    log.say(session)
    tail = log.append(session.encode(), None)
    owner.apply()
    page = owner.model.events(WORKSPACE, session, **EVERYTHING)
    assert sequences(page.events) == [1, 2, 3, 5, 6, 9]
    assert [(gap.first_sequence, gap.last_sequence, gap.offset) for gap in page.gaps] == [
        (4, 4, bad.offset),
        (7, 8, None),
        (10, 9, tail.offset),
    ]
    assert page.gaps[1] == Gap(7, 8, "sequence.missing")
    assert page.gaps[2].reason == "value.absent"
    by_pages: list[Gap] = []
    after = 0
    while after < page.end_sequence:
        part = owner.model.events(WORKSPACE, session, after=after, limit=1, max_bytes=1 << 20)
        by_pages += part.gaps
        after = part.next_after
    assert tuple(by_pages) == page.gaps
    assert owner.model.events(WORKSPACE, session, after=9, limit=1, max_bytes=1).gaps == ()


def test_a_table_that_went_while_it_was_read_gives_no_answer(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process is stopped between the reading and the answer."""
    log = owner.logs[0]
    session = log.create(in_partition(0, PARTITIONS))
    owner.apply()
    store = owner.stores[0]
    get = store.get

    def dropped_meanwhile(key: bytes) -> bytes | None:
        owner.tables.drop(0)
        return get(key)

    monkeypatch.setattr(store, "get", dropped_meanwhile)
    with pytest.raises(NotOwner):
        owner.model.session(WORKSPACE, session)


def test_a_damaged_row_is_not_an_answer_and_has_the_table_rebuilt(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    session = owner.logs[0].create(in_partition(0, PARTITIONS))
    owner.apply()

    def damaged(key: bytes) -> bytes | None:
        raise StoreUnusable("torn")

    monkeypatch.setattr(owner.stores[0], "get", damaged)
    with pytest.raises(ProjectionBehind):
        owner.model.session(WORKSPACE, session)
    assert owner.tables.owned[0].damaged


def test_a_listing_of_partitions_that_are_not_here_is_refused_whole(owner: Owner) -> None:
    owner.tables.drop(1)
    with pytest.raises(NotOwner):
        owner.model.sessions(WORKSPACE, None, partitions=(0, 1), cursor=None, limit=7)
    with pytest.raises(Invalid):
        owner.model.sessions(WORKSPACE, None, partitions=(0, 7), cursor=None, limit=7)
