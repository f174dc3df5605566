"""A request becomes a command: the same ids for the same key, sealed content, nobody named in clear."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from connectors.edge.compose import CommandComposer, Incoming, NewEvent, SessionFacts
from connectors.edge.principal import Principal
from streams.custody.sealing import Sealer, content_expiry_day
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring
from streams.errors import Invalid
from streams.log.record import decode_draft
from streams.session.commands import Kind, Report
from streams.session.events import NONE, OMITTED
from streams.session.ids import derive_event_id, is_id

NOW = 1_800_000_000_000_000
WORKSPACE = "ws_" + "a" * 32
PRINCIPAL = Principal(WORKSPACE, "key_" + "1" * 32, "service", frozenset({"admin"}))
FACTS = SessionFacts(
    session_id="sess_" + "2" * 32, workspace_id=WORKSPACE, subject_id="subj_" + "3" * 32, policy_mode="standard", content_window_days=30
)
MESSAGE = NewEvent(type="message.appended", content=b'{"text": "hi"}')


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[SqliteKeyring]:
    made = open_local_keyring(tmp_path)
    yield made
    made.close()


@pytest.fixture
def sealer(keyring: SqliteKeyring) -> Sealer:
    return Sealer(keyring, cache_seconds=10, now_us=lambda: NOW)


@pytest.fixture
def composer(keyring: SqliteKeyring, sealer: Sealer) -> CommandComposer:
    return CommandComposer(keyring, sealer, timeout_s=5, cache_seconds=10, clock=lambda: NOW)


def incoming(key: str = "k", body: bytes = b"{}", principal: Principal = PRINCIPAL, path: str = "/v1/x") -> Incoming:
    return Incoming(principal=principal, idempotency_key=key, method="POST", path=path, body=body)


def test_the_same_request_is_the_same_command_with_the_same_events(composer: CommandComposer) -> None:
    one, two = (composer.compose(incoming(), FACTS, [MESSAGE, MESSAGE]).command for _ in range(2))
    assert one.command_id == two.command_id
    assert one.request_digest == two.request_digest
    assert [draft.event_id for draft in one.drafts] == [derive_event_id(one.command_id, index) for index in (0, 1)]
    assert [draft.event_id for draft in two.drafts] == [draft.event_id for draft in one.drafts]
    assert one.drafts[0].content.ciphertext != two.drafts[0].content.ciphertext


def test_another_key_session_or_workspace_is_another_command(composer: CommandComposer) -> None:
    ids = {
        composer.naming(facts, incoming(key)).command_id
        for key, facts in [
            ("k", FACTS),
            ("l", FACTS),
            ("k", structs.replace(FACTS, session_id="sess_" + "4" * 32)),
            ("k", structs.replace(FACTS, workspace_id="ws_" + "b" * 32)),
        ]
    }
    assert len(ids) == 4


def test_the_digest_is_over_method_path_and_body(composer: CommandComposer) -> None:
    requests = [
        incoming(),
        incoming(body=b"{ }"),
        incoming(path="/v1/y"),
        structs.replace(incoming(), method="PUT"),
    ]
    assert len({composer.compose(each, FACTS, [MESSAGE]).command.request_digest for each in requests}) == 4


def test_what_a_worker_asks_is_compared_with_who_it_is_but_not_with_its_position(composer: CommandComposer) -> None:
    other = structs.replace(PRINCIPAL, principal_id="key_" + "9" * 32)
    run, task = "run_" + "5" * 32, "task_" + "6" * 32

    def digest(principal: Principal = PRINCIPAL, kind: Kind = Kind.APPEND, report: Report | None = None) -> bytes:
        return composer.compose(incoming(principal=principal), FACTS, [MESSAGE], kind=kind, report=report).command.request_digest

    attempts = [Report(run, 1, task), Report(run, 2, task), Report(run, 1, "task_" + "7" * 32), Report("run_" + "8" * 32, 1, task)]
    digests = [digest(), *(digest(principal, report=each) for each in attempts for principal in (PRINCIPAL, other))]
    digests += [digest(principal, Kind.CLAIM) for principal in (PRINCIPAL, other)]
    assert len(set(digests)) == 11
    assert digest(other) == digest()
    assert digest(report=Report(run, 1, task, 5)) == digest(report=Report(run, 1, task, 9)) == digest(report=attempts[0])
    assert digest(kind=Kind.REPLACE) == digest(kind=Kind.CLAIM)


def test_a_session_id_follows_from_principal_and_key(composer: CommandComposer) -> None:
    other = structs.replace(PRINCIPAL, principal_id="key_" + "9" * 32)
    ids = [
        composer.session_id(incoming(key, principal=principal))
        for key, principal in (("k", PRINCIPAL), ("k", PRINCIPAL), ("l", PRINCIPAL), ("k", other))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert all(is_id(each, "sess") for each in ids)


def test_content_is_sealed_for_its_place_and_opens_to_the_text_that_came(composer: CommandComposer, sealer: Sealer) -> None:
    composed = composer.compose(incoming(), FACTS, [NewEvent(type="turn.started", turn_id="turn_" + "1" * 32), MESSAGE])
    bare, draft = composed.command.drafts
    assert bare.content.state == NONE
    assert sealer.open(draft) == b'{"text": "hi"}'
    reference = draft.content.key_reference
    assert reference is not None
    assert (reference.subject_id, reference.session_id) == (FACTS.subject_id, FACTS.session_id)
    assert reference.expiry_day == content_expiry_day(NOW, 30)
    assert [decode_draft(body) for body in composed.bodies] == list(composed.command.drafts)


def test_zero_data_retention_leaves_content_out_before_anything_is_sent(composer: CommandComposer) -> None:
    composed = composer.compose(incoming(), structs.replace(FACTS, policy_mode="zdr"), [MESSAGE, NewEvent(type="turn.started")])
    assert [draft.content.state for draft in composed.command.drafts] == [OMITTED, NONE]
    assert b"hi" not in b"".join(composed.bodies)


def test_an_actor_becomes_a_pseudonym_once(composer: CommandComposer) -> None:
    events = [
        NewEvent(type="message.appended", actor="mia"),
        NewEvent(type="message.appended", actor="mia"),
        NewEvent(type="message.appended"),
    ]
    first, second, third = composer.compose(incoming(), FACTS, events).command.drafts
    assert first.actor_id is not None
    assert is_id(first.actor_id, "actr")
    assert (second.actor_id, third.actor_id) == (first.actor_id, None)


def test_a_command_says_until_when_it_may_be_decided(composer: CommandComposer) -> None:
    command = composer.compose(incoming(), FACTS, [MESSAGE]).command
    assert (command.issued_at, command.not_after) == (NOW, NOW + 5_000_000)


def noise(seed: int, size: int = 3_000_000) -> bytes:
    """A JSON text that does not compress."""
    return b'"' + base64.b64encode(random.Random(seed).randbytes(size)) + b'"'


def test_where_texts_can_be_stored_the_largest_are_claimed_until_the_command_holds_the_others(composer: CommandComposer) -> None:
    sizes = [2_000_000, 3_000_000, 1_000, 2_500_000, 1_500_000]
    events = [NewEvent(type="message.appended", content=noise(seed, size)) for seed, size in enumerate(sizes)]
    composed = composer.compose(incoming(), FACTS, [*events, NewEvent(type="message.appended")], claiming=True)
    drafts = composed.command.drafts
    assert [text.claim.event_id for text in composed.texts] == [drafts[1].event_id]
    assert composed.texts[0].json_text == events[1].content
    assert sum(len(draft.content.ciphertext or b"") for draft in drafts) <= 8 * 1024 * 1024
    assert [draft.content.state for draft in drafts] == ["sealed"] * 5 + [NONE]
    assert composer.compose(incoming(), FACTS, events[2:], claiming=True).texts == ()


def test_a_text_above_the_limit_of_one_event_is_claimed_however_well_it_compresses(composer: CommandComposer, sealer: Sealer) -> None:
    text = b'"' + b"x" * 9_000_000 + b'"'
    composed = composer.compose(incoming(), FACTS, [MESSAGE, NewEvent(type="message.appended", content=text)], claiming=True)
    sealer.fetch_text = lambda claim: text
    assert sealer.open_many(composed.command.drafts) == [MESSAGE.content, text]
    with pytest.raises(Invalid):
        composer.compose(incoming(), FACTS, [NewEvent(type="message.appended", content=text)])


def test_each_attempt_at_a_command_stores_its_texts_under_names_of_its_own(composer: CommandComposer) -> None:
    event = NewEvent(type="message.appended", content=noise(1, 7_000_000))
    one, two = (composer.compose(incoming(), FACTS, [event], claiming=True).texts[0].claim for _ in range(2))
    assert (one.event_id, one.key) == (two.event_id, two.key)
    assert one.blob_id != two.blob_id


def test_nothing_is_claimed_where_content_is_left_out(composer: CommandComposer) -> None:
    event = NewEvent(type="message.appended", content=noise(1, 7_000_000))
    composed = composer.compose(incoming(), structs.replace(FACTS, policy_mode="zdr"), [event], claiming=True)
    assert composed.texts == ()
    assert composed.command.drafts[0].content.state == OMITTED


def test_a_command_whose_texts_took_a_while_is_issued_anew(composer: CommandComposer, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = composer.compose(incoming(), FACTS, [MESSAGE])
    monkeypatch.setattr(composer, "_clock", lambda: NOW + 60_000_000)
    renewed = composer.renewed(composed)
    assert renewed.command.not_after == composed.command.not_after + 60_000_000
    assert renewed.command.command_id == composed.command.command_id
    assert renewed.bodies == composed.bodies


def test_more_than_eight_mebibytes_of_sealed_content_are_too_large(composer: CommandComposer) -> None:
    """Bytes that do not compress, in events that are each within bounds."""
    events = [NewEvent(type="message.appended", content=noise(seed)) for seed in range(3)]
    with pytest.raises(Invalid) as refused:
        composer.compose(incoming(), FACTS, events)
    assert refused.value.code == "request.too_large"


def test_a_claim_carries_no_content_and_its_lease(composer: CommandComposer) -> None:
    command = composer.compose(incoming(), FACTS, [NewEvent(type="attempt.started")], kind=Kind.CLAIM, lease_ms=7).command
    assert (command.kind, command.lease_ms, command.importing) == (Kind.CLAIM, 7, False)


def test_what_the_keyring_is_needed_for_is_known_without_asking_it(composer: CommandComposer) -> None:
    bare = NewEvent(type="turn.completed")
    assert composer.needs_keyring(FACTS, [bare])
    composer.naming(FACTS, incoming())
    assert not composer.needs_keyring(FACTS, [bare])
    assert composer.needs_keyring(FACTS, [MESSAGE])
    composer.compose(incoming(), FACTS, [MESSAGE])
    assert not composer.needs_keyring(FACTS, [MESSAGE])
    assert composer.needs_keyring(FACTS, [NewEvent(type="message.appended", actor="mia")])
    assert composer.needs_keyring(structs.replace(FACTS, session_id="sess_" + "5" * 32), [MESSAGE])
