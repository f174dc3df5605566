"""The retention driver on a real broker, with holders that say what a test has them say."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from connectors.owner.retention import run_retention
from streams.clock import now_us
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sqlite_keyring import open_local_keyring
from streams.holders.partitions import holders_expected
from streams.log.confirmations import ConfirmationLog
from streams.log.reader import PartitionReader, end_offsets
from streams.log.requests import CommandLog
from streams.log.retention import (
    CACHE,
    ERASE_SESSION,
    ERASE_SUBJECT,
    ERASURE,
    PARTITION,
    Confirmation,
    Order,
    Purged,
    RetentionRow,
    WorkspaceCommand,
    decode_retention,
    encode_workspace_command,
    erasure_id_of,
    order_of,
)
from streams.log.topics import Topics
from streams.settings import Settings
from tests.support.roles import WORKSPACE
from tests.support.waiting import eventually

PRINCIPAL = "key_" + "0" * 32


class Driven:
    """What was told on `sessions.retention`, and what the holders say."""

    def __init__(self, settings: Settings, keyring: Keyring) -> None:
        self.settings, self.keyring = settings, keyring
        self.commands = CommandLog(settings, "test", Topics(settings.topic_prefix).workspace_commands, partitions=1)
        self._said = ConfirmationLog(settings, "test")

    def subject(self) -> str:
        """A person that the keyring knows, with a secret."""
        subject_id = self.keyring.pseudonym(WORKSPACE, "subject", secrets.token_hex(8), create=True)
        assert subject_id is not None
        self.keyring.secrets([SecretRef("subject", WORKSPACE, subject_id)], create=True)
        return subject_id

    def ask(self, target_id: str, **changes: Any) -> str:
        """The erasure's id."""
        scope, action = ("subject", ERASE_SUBJECT) if target_id.startswith("subj_") else ("session", ERASE_SESSION)
        given: dict[str, Any] = {
            "command_id": f"cmd_{secrets.token_hex(16)}", "workspace_id": WORKSPACE, "action": action, "target_id": target_id,
            "principal_id": PRINCIPAL, "issued_at": now_us(), "not_after": now_us() + 60_000_000, "reply_to": "test/1",
        }  # fmt: skip
        self.commands.send(encode_workspace_command(WorkspaceCommand(**{**given, **changes})), WORKSPACE)
        return erasure_id_of(WORKSPACE, scope, target_id)

    def rows(self) -> list[RetentionRow]:
        """Every row that was ever told and is still in the topic, in order."""
        place = (Topics(self.settings.topic_prefix).retention, 0)
        end = end_offsets(self.settings, [place], committed=True)[place]
        found: list[RetentionRow] = []
        with PartitionReader(self.settings, "test", {place: 0}) as reader:
            while reader.position(*place) < end:
                found += [decode_retention(record.value) for record in reader.read(1000, 0.2) if record.value is not None]
        return found

    def orders(self) -> list[Order]:
        return [order for order in map(order_of, self.rows()) if order is not None]

    def state(self, erasure_id: str) -> RetentionRow | None:
        found = [row for row in self.rows() if row.kind == ERASURE and row.id == erasure_id]
        return found[-1] if found else None

    def reached(self, erasure_id: str, state: str, *, timeout_s: float = 20) -> RetentionRow:
        def there() -> bool:
            row = self.state(erasure_id)
            return row is not None and row.state == state

        eventually(there, timeout_s=timeout_s, every_s=0.05)
        row = self.state(erasure_id)
        assert row is not None
        return row

    def cache_says(self, holder_id: str, enforced_through: int, *, leaving: bool = False) -> None:
        self._say(holder_id, CACHE, enforced_through, enforced_through, leaving=leaving)

    def partitions_say(self, purged_through: int, *purged: Purged) -> None:
        """Every store that there is; the first one brings the reports."""
        for each, holder in enumerate(holders_expected(self.settings.partitions)):
            self._say(holder, PARTITION, purged_through, purged_through, purged=purged if each == 0 else ())

    def _say(self, holder_id: str, kind: str, enforced: int, purged_through: int, **more: Any) -> None:
        self._said.tell_now(
            Confirmation(
                holder_id=holder_id, kind=kind, process="test/1", enforced_through=enforced, purged_through=purged_through,
                told_at=now_us(), **more,
            )
        )  # fmt: skip

    def close(self) -> None:
        self.commands.close()
        self._said.close()


@contextmanager
def asking(settings: Settings) -> Iterator[Driven]:
    """Without a driver."""
    keyring = open_local_keyring(settings.data_dir / "keyring")
    driven = Driven(settings, keyring)
    try:
        yield driven
    finally:
        driven.close()
        keyring.close()


@contextmanager
def driving(settings: Settings) -> Iterator[Driven]:
    """With a driver that runs in a thread."""
    with asking(settings) as driven, driver_thread(settings):
        yield driven


@contextmanager
def driver_thread(settings: Settings) -> Iterator[None]:
    stop, listening, failures = threading.Event(), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            run_retention(settings, "127.0.0.1", 0, stop, on_listening=lambda _: listening.set())
        except BaseException as error:
            failures.append(error)
            listening.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert listening.wait(30)
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not failures, failures
