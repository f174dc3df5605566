"""What a source could not read: sealed with its place, and told stored only once the broker has it."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from connectors.edge.dead_letters import Unread, deliver, seal_unread
from streams.clock import now_us
from streams.custody.dead_letters import Address, open_dead_letter
from streams.custody.sealing import Sealer, content_expiry_day
from streams.custody.sqlite_keyring import open_local_keyring
from streams.errors import BrokerUnavailable, Misconfigured, Overloaded, StreamsError
from streams.log.topics import DEAD_LETTER_DAYS
from streams.session.dead_letters import DeadLetter
from tests.support.commands import new_id

UNREAD = Unread(
    workspace_id=new_id("ws"),
    session_id=new_id("sess"),
    policy_mode="standard",
    source_kind="claude-code",
    source_index=7,
    reason="line.not_json",
    place="/home/mia/transcript.jsonl:8",
    record=b"{",
)
LETTER = DeadLetter(origin="x", reason="x", detail="x", recorded_at=0, key_day="2026-01-01", ciphertext=b"", digest=b"")


class Letters:
    """Answers from another thread, or never."""

    def __init__(self, *answers: StreamsError | None) -> None:
        self.answers = answers

    def send_dead_letter(self, letter: DeadLetter, key: str, on_done: Callable[[StreamsError | None], None]) -> None:
        for answer in self.answers:
            threading.Thread(target=on_done, args=(answer,)).start()


def test_it_is_sealed_for_as_long_as_the_topic_keeps_it(tmp_path: Path) -> None:
    keyring = open_local_keyring(tmp_path)
    try:
        sealer, now = Sealer(keyring, cache_seconds=10), now_us()
        letter = seal_unread(sealer, UNREAD, now)
        assert letter.key_day == content_expiry_day(now, DEAD_LETTER_DAYS)
        assert b"mia" not in letter.ciphertext
        address = Address(letter.key_day, letter.origin, letter.partition, letter.offset, letter.workspace_id)
        opened = open_dead_letter(sealer, address, ciphertext=letter.ciphertext, digest=letter.digest)
        assert (opened.place, opened.value) == (UNREAD.place, UNREAD.record)
    finally:
        keyring.close()


def test_under_zero_data_retention_only_that_there_was_one_is_kept(tmp_path: Path) -> None:
    keyring = open_local_keyring(tmp_path)
    try:
        sealer = Sealer(keyring, cache_seconds=10)
        letter = seal_unread(sealer, structs.replace(UNREAD, policy_mode="zdr"), now_us())
        assert (letter.reason, letter.offset) == (UNREAD.reason, UNREAD.source_index)
        address = Address(letter.key_day, letter.origin, letter.partition, letter.offset, letter.workspace_id)
        opened = open_dead_letter(sealer, address, ciphertext=letter.ciphertext, digest=letter.digest)
        assert (opened.place, opened.value) == ("", b"")
    finally:
        keyring.close()


def test_it_is_stored_once_the_broker_says_so() -> None:
    asyncio.run(deliver(Letters(None), LETTER, "key", 5))


@pytest.mark.parametrize(
    ("answers", "kind"), [((), BrokerUnavailable), ((Misconfigured("no topic"),), BrokerUnavailable), ((Overloaded("full"),), Overloaded)]
)
def test_what_is_not_known_to_be_stored_is_to_be_sent_again(answers: tuple[StreamsError, ...], kind: type[StreamsError]) -> None:
    with pytest.raises(kind):
        asyncio.run(deliver(Letters(*answers), LETTER, "key", 0.3))
