"""The retention driver on a real broker: accepted, destroyed, enforced, complete; each told once, in one order, however it dies."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator

import msgspec
import pytest

from streams.clock import now_us
from streams.custody.keyring import SecretRef
from streams.custody.signers import Signers
from streams.custody.signing import opened
from streams.log.retention import (
    ACCEPTED,
    COMPLETE,
    DAY,
    DEAD_LETTERS,
    DESTROYED,
    ENFORCED,
    EXPIRED,
    Purged,
    RetentionRow,
)
from streams.retention.receipts import PAYLOAD_TYPE
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.driving import Driven, driving
from tests.support.examples import made_up_id
from tests.support.roles import WORKSPACE
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]


@pytest.fixture
def settings(broker: Broker, settings_on: Callable[..., Settings]) -> Settings:
    return settings_on(
        broker.bootstrap, partitions=2, lease_s=1.5, transaction_timeout_s=3.0, compacted_segment_s=0.1, compaction_margin_s=0.1,
        file_delete_delay_s=0.1,
    )  # fmt: skip


@pytest.fixture
def driven(settings: Settings) -> Iterator[Driven]:
    with driving(settings) as made:
        yield made


def receipts(settings: Settings, row: RetentionRow) -> list[dict[str, object]]:
    """Each verified."""
    assert row.erasure is not None
    trusted = Signers(settings.signers_path).trust().counting("receipts")
    return [json.loads(opened(envelope, PAYLOAD_TYPE, trusted).payload) for envelope in row.erasure.receipts]


def test_an_erasure_goes_from_accepted_to_complete_with_a_signed_receipt_for_each_step(driven: Driven) -> None:
    driven.cache_says("gateway/1", 0)
    subject_id = driven.subject()
    secret = SecretRef("subject", WORKSPACE, subject_id)
    erasure_id = driven.ask(subject_id)
    driven.reached(erasure_id, DESTROYED)
    assert driven.keyring.destroyed([secret]) == {secret}
    assert [(order.order, order.id) for order in driven.orders()] == [(1, subject_id)]
    driven.cache_says("gateway/1", 1)
    driven.reached(erasure_id, ENFORCED)
    driven.partitions_say(1, Purged(order=1, counts={"sessions": 2, "checkpoints": 1}))
    row = driven.reached(erasure_id, COMPLETE)
    told = receipts(driven.settings, row)
    assert [receipt["step"] for receipt in told] == [ACCEPTED, ENFORCED, COMPLETE]
    assert told[1]["holders"] == ["gateway/1"]
    assert told[1]["lapsed"] == []
    assert told[2]["counts"] == {"checkpoints": 1, "sessions": 2}
    assert told[2]["holders"] == ["agents/0", "agents/1", "custodian/0", "custodian/1"]
    assert {receipt["scope"]["id"] for receipt in told if isinstance(receipt["scope"], dict)} == {subject_id}
    # Times go forward, and an order is told once.
    times = [told[2][name] for name in ("accepted_at", "destroyed_at", "enforced_at", "complete_at")]
    assert times == sorted(times, key=str)
    assert len(driven.orders()) == 1


def test_what_was_asked_before_is_the_same_erasure(driven: Driven) -> None:
    session_id = made_up_id("sess")
    erasure_id = driven.ask(session_id)
    driven.reached(erasure_id, ENFORCED)
    assert driven.ask(session_id) == erasure_id
    other = driven.ask(made_up_id("sess", "other"))
    driven.reached(other, ENFORCED)
    assert [order.order for order in driven.orders()] == [1, 2]


def test_a_request_that_is_found_too_late_takes_no_effect(driven: Driven) -> None:
    late = driven.ask(made_up_id("sess", "late"), not_after=now_us() - 1)
    driven.reached(driven.ask(made_up_id("sess")), ENFORCED)
    assert driven.state(late) is None


def test_a_silent_cache_is_waited_for_no_longer_than_a_lease_and_named(driven: Driven) -> None:
    driven.cache_says("gateway/silent", 0)
    erasure_id = driven.ask(driven.subject())
    row = driven.reached(erasure_id, ENFORCED)
    assert row.erasure is not None
    assert row.destroyed_at is not None
    assert row.erasure.enforced_at is not None
    assert row.erasure.enforced_at - row.destroyed_at >= driven.settings.lease_s * 1_000_000
    assert receipts(driven.settings, row)[-1]["lapsed"] == ["gateway/silent"]


def test_a_cache_that_left_is_not_waited_for(driven: Driven) -> None:
    driven.cache_says("gateway/left", 0)
    driven.cache_says("gateway/left", 0, leaving=True)
    row = driven.reached(driven.ask(driven.subject()), ENFORCED)
    assert receipts(driven.settings, row)[-1]["lapsed"] == []


def test_an_erasure_is_complete_only_once_every_store_has_purged_it_and_compaction_had_its_time(driven: Driven) -> None:
    erasure_id = driven.ask(driven.subject())
    driven.reached(erasure_id, ENFORCED)
    tombstones_at = now_us()
    driven.partitions_say(1, Purged(order=1, counts={"agent_checkpoints": 1}, tombstones_at=tombstones_at))
    row = driven.reached(erasure_id, COMPLETE)
    assert row.erasure is not None
    assert row.erasure.completed_at is not None
    assert row.erasure.completed_at - tombstones_at >= 4_000_000


def test_secrets_of_days_that_are_over_are_destroyed_after_the_grace_and_told(driven: Driven) -> None:
    over = [SecretRef("day", WORKSPACE, "2020-01-02"), SecretRef("dead_letters", WORKSPACE, "2020-01-03")]
    kept = SecretRef("day", WORKSPACE, "2999-01-01")
    driven.keyring.secrets([*over, kept], create=True)
    eventually(lambda: len(driven.orders()) == 2, timeout_s=20)
    assert [(row.kind, row.id, row.state) for row in driven.rows() if row.order] == [
        (DAY, "2020-01-02", EXPIRED), (DEAD_LETTERS, "2020-01-03", EXPIRED),
    ]  # fmt: skip
    assert driven.keyring.destroyed([*over, kept]) == set(over)


def test_what_cannot_be_read_is_set_aside_and_the_next_request_is_decided(driven: Driven) -> None:
    driven.commands.send(b"not ours", WORKSPACE)
    driven.ask("subj_of nobody")
    driven.reached(driven.ask(driven.subject()), ENFORCED)
    assert len(driven.orders()) == 1


def test_receipts_are_envelopes_that_name_nobody_but_by_pseudonym(driven: Driven) -> None:
    subject_id = driven.keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True)
    assert subject_id is not None
    row = driven.reached(driven.ask(subject_id), ENFORCED)
    assert row.erasure is not None
    for envelope in row.erasure.receipts:
        told = msgspec.json.decode(envelope)
        assert b"mia_li" not in b64decode(told["payload"])
