"""What every keyring must do; a subclass says how to open one (`open_keyring`, each call the same storage anew)."""

import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from streams.custody.keyring import Keyring, SecretRef
from streams.errors import ContentUnavailable, Invalid

WORKSPACE = "ws_" + "1" * 32
OTHER_WORKSPACE = "ws_" + "2" * 32

OpenKeyring = Callable[[], Keyring]


def subject(number: int = 0, workspace_id: str = WORKSPACE) -> SecretRef:
    return SecretRef("subject", workspace_id, f"subj_{number:032x}")


def session(number: int = 0, workspace_id: str = WORKSPACE) -> SecretRef:
    return SecretRef("session", workspace_id, f"sess_{number:032x}")


def day(text: str = "2031-02-03", workspace_id: str = WORKSPACE) -> SecretRef:
    return SecretRef("day", workspace_id, text)


def snapshot(number: int = 0, workspace_id: str = WORKSPACE) -> SecretRef:
    return SecretRef("snapshot", workspace_id, f"snap_{number:032x}")


def at_once(actions: Collection[Callable[[], object]]) -> list[object]:
    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result() for future in [pool.submit(action) for action in actions]]


class KeyringContract:
    """Subclass it as `Test...` and give it the fixture `open_keyring`."""

    @pytest.fixture
    def keyring(self, open_keyring: OpenKeyring) -> Keyring:
        return open_keyring()

    def test_secrets_are_32_random_bytes_each_its_own(self, keyring: Keyring) -> None:
        refs = [subject(), session(), day(), SecretRef("dead_letters", WORKSPACE, "2031-02-03"), session(0, OTHER_WORKSPACE), snapshot()]
        secrets = keyring.secrets(refs, create=True)
        assert secrets.keys() == set(refs)
        assert {len(secret) for secret in secrets.values()} == {32}
        assert len(set(secrets.values())) == len(refs)

    def test_a_secret_stays_the_same_for_everyone_who_asks(self, open_keyring: OpenKeyring) -> None:
        first, second = open_keyring(), open_keyring()
        created = first.secrets([session()], create=True)
        assert second.secrets([session()], create=True) == created
        assert second.secrets([session()], create=False) == created
        first.close()
        second.close()
        assert open_keyring().secrets([session()], create=False) == created

    def test_without_create_what_is_not_there_is_absent(self, keyring: Keyring) -> None:
        keyring.secrets([session(1)], create=True)
        assert keyring.secrets([session(1), session(2)], create=False).keys() == {session(1)}
        assert keyring.secrets([session(2)], create=False) == {}
        assert keyring.secrets([], create=True) == {}

    many = 1200
    """Secrets in one call: more than a statement or a page takes at once."""

    def test_many_secrets_in_one_call(self, keyring: Keyring) -> None:
        refs = [session(number) for number in range(self.many)]
        created = keyring.secrets(refs, create=True)
        assert len(set(created.values())) == self.many
        assert keyring.secrets(refs, create=False) == created

    def test_those_who_race_for_a_secret_get_the_same(self, open_keyring: OpenKeyring) -> None:
        keyrings = [open_keyring() for _ in range(4)]
        for number in range(10):
            refs = [session(number), day()]
            answers = at_once([partial(keyring.secrets, refs, create=True) for keyring in keyrings])
            assert all(answer == answers[0] for answer in answers)

    @pytest.mark.parametrize(
        ("ref", "code"),
        [
            (subject(), "content.erased"),
            (session(), "content.erased"),
            (day(), "content.expired"),
            (snapshot(), "content.expired"),
        ],
        ids=str,
    )
    def test_a_destroyed_secret_is_gone_everywhere_and_never_comes_back(self, open_keyring: OpenKeyring, ref: SecretRef, code: str) -> None:
        one, other = open_keyring(), open_keyring()
        one.secrets([ref], create=True)
        other.secrets([ref], create=True)
        one.destroy([ref])
        for keyring in (one, other, open_keyring()):
            assert keyring.secrets([ref], create=False) == {}
            with pytest.raises(ContentUnavailable) as refused:
                keyring.secrets([ref, session(77)], create=True)
            assert refused.value.code == code

    def test_a_secret_that_never_was_can_be_destroyed_before_a_slow_process_creates_it(self, keyring: Keyring) -> None:
        keyring.destroy([session(5)])
        with pytest.raises(ContentUnavailable):
            keyring.secrets([session(5)], create=True)

    def test_destroying_again_changes_nothing(self, keyring: Keyring) -> None:
        keyring.secrets([session()], create=True)
        keyring.destroy([session()])
        keyring.destroy([session(), session()])
        keyring.destroy([])
        assert keyring.destroyed([session()]) == {session()}

    def test_destroyed_is_told_from_never_there(self, keyring: Keyring) -> None:
        keyring.secrets([session(1), session(2)], create=True)
        keyring.destroy([session(2)])
        assert keyring.destroyed([session(1), session(2), session(3)]) == {session(2)}
        assert keyring.destroyed([]) == frozenset()

    def test_other_secrets_outlive_a_destruction(self, keyring: Keyring) -> None:
        refs = [session(number) for number in range(200)]
        created = keyring.secrets(refs, create=True)
        keyring.destroy(refs[::2])
        assert keyring.secrets(refs, create=False) == {ref: created[ref] for ref in refs[1::2]}

    @pytest.mark.parametrize(
        "ref",
        [
            SecretRef("session", WORKSPACE, "mia_li_3668"),
            SecretRef("session", WORKSPACE, "subj_" + "0" * 32),
            SecretRef("session", "ws_1/../x", "sess_" + "0" * 32),
            SecretRef("day", WORKSPACE, "tomorrow"),
            SecretRef("snapshot", WORKSPACE, "sess_" + "0" * 32),
        ],
        ids=str,
    )
    def test_what_is_no_reference_is_refused(self, keyring: Keyring, ref: SecretRef) -> None:
        for call in (lambda: keyring.secrets([ref], create=True), lambda: keyring.destroy([ref]), lambda: keyring.destroyed([ref])):
            with pytest.raises(Invalid):
                call()

    def test_an_identity_key_is_one_a_workspace_and_stays(self, open_keyring: OpenKeyring) -> None:
        keyring = open_keyring()
        key = keyring.identity_key(WORKSPACE)
        assert len(key) == 32
        assert keyring.identity_key(OTHER_WORKSPACE) != key
        assert keyring.identity_key(WORKSPACE) == key == open_keyring().identity_key(WORKSPACE)

    def test_those_who_race_for_an_identity_key_get_the_same(self, open_keyring: OpenKeyring) -> None:
        keyrings = [open_keyring() for _ in range(4)]
        answers = at_once([partial(keyring.identity_key, WORKSPACE) for keyring in keyrings])
        assert len(set(answers)) == 1

    def test_a_pseudonym_is_random_and_stays_with_its_name(self, open_keyring: OpenKeyring) -> None:
        keyring = open_keyring()
        pseudonym = keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True)
        assert re.fullmatch("subj_[0-9a-f]{32}", str(pseudonym))
        assert keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True) == pseudonym
        assert open_keyring().pseudonym(WORKSPACE, "subject", "mia_li_3668", create=False) == pseudonym

    def test_names_kinds_and_workspaces_have_pseudonyms_of_their_own(self, keyring: Keyring) -> None:
        asked = [(WORKSPACE, "subject", "a"), (WORKSPACE, "subject", "b"), (WORKSPACE, "actor", "a"), (OTHER_WORKSPACE, "subject", "a")]
        given = [keyring.pseudonym(workspace_id, kind, name, create=True) for workspace_id, kind, name in asked]  # type: ignore[arg-type]
        assert len(set(given)) == 4
        assert str(given[2]).startswith("actr_")

    def test_a_read_creates_no_pseudonym(self, keyring: Keyring) -> None:
        assert keyring.pseudonym(WORKSPACE, "subject", "nobody", create=False) is None
        keyring.identity_key(WORKSPACE)
        assert keyring.pseudonym(WORKSPACE, "subject", "nobody", create=False) is None

    @pytest.mark.parametrize("name", ["", "Zoë 山田", "a/b", "x" * 10_000, "nul\0inside"], ids=lambda name: repr(name[:12]))
    def test_any_text_is_a_name(self, keyring: Keyring, name: str) -> None:
        assert keyring.pseudonym(WORKSPACE, "actor", name, create=True) == keyring.pseudonym(WORKSPACE, "actor", name, create=False)

    def test_a_lone_surrogate_is_no_name(self, keyring: Keyring) -> None:
        with pytest.raises(Invalid):
            keyring.pseudonym(WORKSPACE, "actor", "\ud800", create=True)

    def test_those_who_race_for_a_name_get_the_same_pseudonym(self, open_keyring: OpenKeyring) -> None:
        keyrings = [open_keyring() for _ in range(4)]
        for number in range(10):
            answers = at_once([partial(k.pseudonym, WORKSPACE, "subject", f"name {number}", create=True) for k in keyrings])
            assert len(set(answers)) == 1

    def test_an_erased_person_is_forgotten_in_both_roles_and_returns_as_someone_else(self, open_keyring: OpenKeyring) -> None:
        keyring = open_keyring()
        old = str(keyring.pseudonym(WORKSPACE, "subject", "mia", create=True))
        old_actor = keyring.pseudonym(WORKSPACE, "actor", "mia", create=True)
        tom = keyring.pseudonym(WORKSPACE, "subject", "tom", create=True)
        keyring.destroy([SecretRef("subject", WORKSPACE, old)])

        assert keyring.pseudonym(WORKSPACE, "subject", "mia", create=False) is None
        assert keyring.pseudonym(WORKSPACE, "subject", "tom", create=False) == tom
        new = str(open_keyring().pseudonym(WORKSPACE, "subject", "mia", create=True))
        assert new != old
        assert keyring.pseudonym(WORKSPACE, "actor", "mia", create=True) != old_actor
        assert keyring.secrets([SecretRef("subject", WORKSPACE, new)], create=True)
        with pytest.raises(ContentUnavailable):
            keyring.secrets([SecretRef("subject", WORKSPACE, old)], create=True)

    def test_destroying_a_session_forgets_nobody(self, keyring: Keyring) -> None:
        mia = keyring.pseudonym(WORKSPACE, "subject", "mia", create=True)
        keyring.secrets([session()], create=True)
        keyring.destroy([session(), day()])
        assert keyring.pseudonym(WORKSPACE, "subject", "mia", create=False) == mia

    def test_days_that_are_over_are_found_the_oldest_first_and_only_while_they_are_there(self, keyring: Keyring) -> None:
        letters = SecretRef("dead_letters", WORKSPACE, "2031-02-02")
        days = [day("2031-02-03"), day("2031-02-01"), day("2031-02-01", OTHER_WORKSPACE), day("2031-03-01")]
        keyring.secrets([*days, letters, session(), snapshot()], create=True)
        found = keyring.days_before("2031-02-04", 10)
        assert set(found) == {*days[:3], letters}
        assert [ref.id for ref in found] == sorted(ref.id for ref in found)
        assert len(keyring.days_before("2031-02-04", 2)) == 2
        assert {ref.id for ref in keyring.days_before("2031-02-04", 2)} == {"2031-02-01"}
        assert keyring.days_before("2031-02-01", 10) == []
        keyring.destroy([*days[:3]])
        assert keyring.days_before("2031-02-04", 10) == [letters]

    def test_a_day_that_was_never_there_is_not_found_once_it_is_destroyed(self, keyring: Keyring) -> None:
        keyring.destroy([day("2031-02-03")])
        assert keyring.days_before("2032-01-01", 10) == []
        with pytest.raises(ContentUnavailable):
            keyring.secrets([day("2031-02-03")], create=True)
        assert keyring.days_before("2032-01-01", 10) == []

    def test_a_rotation_changes_no_secret_no_name_and_no_key_of_identities(self, open_keyring: OpenKeyring) -> None:
        keyring = open_keyring()
        refs = [subject(), session(), day(), snapshot()]
        secrets, identity = keyring.secrets(refs, create=True), keyring.identity_key(WORKSPACE)
        other = keyring.secrets([session(0, OTHER_WORKSPACE)], create=True)
        name = keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True)
        keyring.destroy([snapshot(1)])
        before = keyring.counts(WORKSPACE)
        assert keyring.rotate(WORKSPACE) == len(refs) + 1
        after = keyring.counts(WORKSPACE)
        assert after == {**before, "generation": before["generation"] + 1}
        for reader in (keyring, open_keyring()):
            assert reader.secrets(refs, create=False) == secrets
            assert reader.secrets([session(0, OTHER_WORKSPACE)], create=False) == other
            assert reader.identity_key(WORKSPACE) == identity
            assert reader.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=False) == name
            assert reader.destroyed([snapshot(1)]) == {snapshot(1)}
        assert keyring.counts(OTHER_WORKSPACE)["generation"] == 1

    def test_keyrings_that_have_read_before_go_on_through_rotations(self, open_keyring: OpenKeyring) -> None:
        rotating, slow = open_keyring(), open_keyring()
        first = slow.secrets([session(1)], create=True)
        for number in range(2, 5):
            rotating.rotate(WORKSPACE)
            first |= slow.secrets([session(number)], create=True)
        assert slow.secrets(list(first), create=False) == first
        rotating.rotate(WORKSPACE)
        rotating.rotate(WORKSPACE)
        assert open_keyring().secrets(list(first), create=False) == first

    def test_secrets_that_are_created_during_rotations_are_the_same_for_everybody_afterwards(self, open_keyring: OpenKeyring) -> None:
        rotating, creating = open_keyring(), open_keyring()
        creating.secrets([session(0)], create=True)
        made: dict[SecretRef, bytes] = {}

        def create() -> None:
            for number in range(1, 13):
                made.update(creating.secrets([session(number)], create=True))

        def rotate() -> None:
            for _ in range(3):
                rotating.rotate(WORKSPACE)

        at_once([create, rotate])
        rotating.rotate(WORKSPACE)
        assert open_keyring().secrets(list(made), create=False) == made

    def test_what_is_destroyed_during_a_rotation_stays_destroyed(self, open_keyring: OpenKeyring) -> None:
        rotating, destroying = open_keyring(), open_keyring()
        refs = [session(number) for number in range(12)]
        rotating.secrets(refs, create=True)

        def destroy() -> None:
            for ref in refs[::2]:
                destroying.destroy([ref])

        at_once([partial(rotating.rotate, WORKSPACE), destroy])
        rotating.rotate(WORKSPACE)
        reader = open_keyring()
        assert reader.destroyed(refs) == set(refs[::2])
        assert reader.secrets(refs, create=False).keys() == set(refs[1::2])

    def test_workspaces_that_have_a_key_are_listed(self, keyring: Keyring) -> None:
        assert keyring.workspaces() == []
        keyring.secrets([session(), session(0, OTHER_WORKSPACE)], create=True)
        assert keyring.workspaces() == [WORKSPACE, OTHER_WORKSPACE]

    def test_a_name_that_is_spelled_like_a_pseudonym_becomes_nobody(self, keyring: Keyring) -> None:
        for outside_id in (f"subj_{'0' * 32}", f"actr_{'1' * 32}"):
            with pytest.raises(Invalid, match="pseudonym"):
                keyring.pseudonym(WORKSPACE, "subject", outside_id, create=True)
            assert keyring.pseudonym(WORKSPACE, "subject", outside_id, create=False) is None
        assert keyring.pseudonym(WORKSPACE, "subject", "subj_mine", create=True)

    def test_a_pseudonym_is_known_while_it_stands_for_somebody(self, keyring: Keyring) -> None:
        made = keyring.pseudonym(WORKSPACE, "subject", "mia", create=True)
        assert made is not None
        assert keyring.is_named(WORKSPACE, made)
        assert not keyring.is_named(OTHER_WORKSPACE, made)
        assert not keyring.is_named(WORKSPACE, f"subj_{'0' * 32}")
        keyring.destroy([SecretRef("subject", WORKSPACE, made)])
        assert not keyring.is_named(WORKSPACE, made)
