"""What a process knows of erased people: by orders, and by asking once."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from connectors.edge.erased import Erased, people_of
from connectors.edge.forgetting import Forgetting
from streams.custody.keyring import SecretRef
from streams.custody.sealing import Sealer
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring
from streams.errors import KeyringUnavailable
from streams.log.retention import DAY, REISSUE, SESSION, SUBJECT, Order
from tests.support.commands import new_id
from tests.support.gateway import WORKSPACE


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[SqliteKeyring]:
    opened = open_local_keyring(tmp_path / "keyring")
    yield opened
    opened.close()


def person() -> tuple[SecretRef, ...]:
    return people_of(WORKSPACE, new_id("subj"), new_id("sess"))


def test_only_the_keyring_can_tell_of_who_was_not_heard_of_and_is_asked_once(keyring: SqliteKeyring) -> None:
    erased, who = Erased(keyring), person()
    assert erased.known(who) is None
    assert erased.ask(who) is False
    assert erased.known(who) is False
    keyring.destroy(person())
    assert erased.ask(who) is False


@pytest.mark.parametrize("part", [0, 1])
def test_who_is_destroyed_is_erased_by_subject_as_by_session(keyring: SqliteKeyring, part: int) -> None:
    erased, who = Erased(keyring), person()
    keyring.destroy(who[part : part + 1])
    assert erased.ask(who) is True
    assert erased.known(who) is True
    assert erased.told_at(who[part].id) == 0


def test_an_order_counts_at_once_whatever_was_known_before(keyring: SqliteKeyring) -> None:
    erased, who = Erased(keyring, clock=lambda: 7), person()
    assert erased.ask(who) is False
    erased.told([Order(1, SUBJECT, WORKSPACE, who[0].id)])
    assert erased.known(who) is True
    assert (erased.told_at(who[0].id), erased.told_at(who[1].id)) == (7, 0)


def test_an_order_that_comes_while_the_keyring_answers_is_not_lost(keyring: SqliteKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    erased, who = Erased(keyring), person()

    def meanwhile(refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        erased.told([Order(1, SESSION, WORKSPACE, who[1].id)])
        return frozenset()

    monkeypatch.setattr(keyring, "destroyed", meanwhile)
    assert erased.ask(who) is True
    assert erased.known(who) is True


def test_days_and_repetitions_are_nobodys_erasure(keyring: SqliteKeyring) -> None:
    erased = Erased(keyring)
    erased.told([Order(1, DAY, WORKSPACE, "2026-01-01"), Order(2, REISSUE, WORKSPACE, "1")])
    assert erased.ask(person()) is False


def test_nobody_is_asked_for_of_whom_nothing_concerns_anybody(keyring: SqliteKeyring) -> None:
    assert Erased(keyring).known(people_of(WORKSPACE, None)) is False


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_asked_for_again(keyring: SqliteKeyring) -> None:
    erased, people = Erased(keyring, remembered_max=10), [person() for _ in range(20)]
    for who in people:
        keyring.destroy(who[:1])
        erased.told([Order(1, SUBJECT, WORKSPACE, who[0].id)])
    assert erased.known(people[0]) is None
    assert erased.ask(people[0]) is True


def test_while_the_keyring_is_away_nobody_is_taken_for_not_erased(keyring: SqliteKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        raise KeyringUnavailable("away")

    monkeypatch.setattr(keyring, "destroyed", away)
    with pytest.raises(KeyringUnavailable):
        Erased(keyring).ask(person())


def test_forgetting_drops_the_secrets_that_an_order_names_and_names_where_it_is_of_a_subject(keyring: SqliteKeyring) -> None:
    sealer, dropped = Sealer(keyring, cache_seconds=100), list[str]()
    forgetting = Forgetting(Erased(keyring), sealer, lambda: dropped.append("composer"))
    forgetting.also(lambda: dropped.append("agents"))
    one, other = person(), person()
    day = SecretRef("day", WORKSPACE, "2026-01-01")
    sealer.secrets([*one, *other, day], create=True)
    keyring.destroy([*one, day])
    assert len(sealer.secrets([*one, *other, day], create=False)) == 5
    forgetting([Order(1, SESSION, WORKSPACE, one[1].id), Order(2, DAY, WORKSPACE, day.id)])
    assert dropped == []
    forgetting([Order(3, SUBJECT, WORKSPACE, one[0].id)])
    assert dropped == ["composer", "agents"]
    assert sealer.secrets([*one, *other, day], create=False).keys() == set(other)
