"""A process that caches secrets is a holder like any other, on a real broker; and it says that it leaves."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.clock import now_us
from streams.custody.keyring import SecretKind, SecretRef
from streams.custody.sealing import NotAtHand, Sealer
from streams.custody.sqlite_keyring import open_local_keyring
from streams.holders.caches import CacheHolder
from streams.holders.forgetting import forget, secrets_of
from streams.log import topics
from streams.log.reader import PartitionReader
from streams.log.retention import CACHE, ERASED, SUBJECT, Confirmation, Order, RetentionRow, decode_confirmation, encode_retention
from streams.log.topics import Topics
from streams.settings import Settings
from tests.conftest import Broker
from tests.contract.holder_contract import WORKSPACE, Held, HolderContract, of_a_subject
from tests.support.waiting import eventually

_SECRETS: dict[str, SecretKind] = {"subject": "subject", "session": "session"}


class HeldCache(Held):
    """A sealer with its holder."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        names = Topics(settings.topic_prefix)
        self._retention = names.retention
        self._producer = Producer({"bootstrap.servers": settings.bootstrap})
        self._reader = PartitionReader(settings, "test.confirmations", {(names.confirmations, 0): 0})
        self._told: list[Confirmation] = []
        self._keyring = open_local_keyring(settings.data_dir / "keyring")
        self._start()

    def takes(self, kind: str, identifier: str) -> None:
        self.sealer.secrets([self._ref(kind, identifier)], create=True)

    def holds(self, kind: str, identifier: str) -> bool:
        try:
            return bool(self.sealer.secrets([self._ref(kind, identifier)], create=False, ask=False))
        except NotAtHand:
            return False

    def orders(self, *orders: Order) -> None:
        self._keyring.destroy(secrets_of(orders))
        for order in orders:
            row = RetentionRow(
                kind=order.kind, workspace_id=order.workspace_id, id=order.id, state=ERASED, order=order.order, ended_at=now_us()
            )
            self.writes(row.key, encode_retention(row))

    def writes(self, key: bytes, value: bytes) -> None:
        self._producer.produce(self._retention, value, key, 0)
        assert self._producer.flush(20) == 0

    def told(self) -> list[Confirmation]:
        """Of the process that is there now."""
        for record in self._reader.read(1000, 0.05):
            assert record.value is not None
            self._told.append(decode_confirmation(record.value))
        return [each for each in self._told if each.holder_id == self.holder.process]

    def until(self, condition: Callable[[], bool]) -> None:
        eventually(condition, timeout_s=20)

    def starts_again(self) -> None:
        self.holder.close()
        self._start()

    def close(self) -> None:
        self.holder.close()
        self._reader.close()
        self._keyring.close()

    def all_told(self) -> list[Confirmation]:
        self.told()
        return self._told

    def _start(self) -> None:
        self.sealer = Sealer(self._keyring, cache_seconds=600)
        self.holder = CacheHolder(self.settings, "test", partial(forget, self.sealer))

    def _ref(self, kind: str, identifier: str) -> SecretRef:
        return SecretRef(_SECRETS[kind], WORKSPACE, identifier)


class TestACache(HolderContract):
    @pytest.fixture(autouse=True)
    def place(self, broker: Broker, tmp_path: Path) -> None:
        prefix = f"t{uuid.uuid4().hex[:10]}."
        self.settings = Settings(bootstrap=broker.bootstrap, topic_prefix=prefix, data_dir=tmp_path, partitions=1, lease_s=1.5)

    @contextmanager
    def holder(self) -> Iterator[HeldCache]:
        names = Topics(self.settings.topic_prefix)
        specs = [spec for spec in topics.declared(self.settings) if spec.name in (names.retention, names.confirmations)]
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(spec.name, num_partitions=1, replication_factor=1, config=spec.config) for spec in specs])
        for each in made.values():
            each.result(20)
        try:
            with closing(HeldCache(self.settings)) as held:
                yield held
        finally:
            admin.delete_topics([spec.name for spec in specs], request_timeout=5)

    def test_it_is_heard_of_while_nothing_happens(self) -> None:
        with self.holder() as held:
            held.until(lambda: len(held.told()) >= 3)
            assert {(each.kind, each.enforced_through) for each in held.told()} == {(CACHE, 0)}

    def test_it_says_that_it_leaves(self) -> None:
        with self.holder() as held:
            process = held.holder.process
            held.starts_again()
            held.until(lambda: any(each.leaving for each in held.all_told()))
            assert [each.holder_id for each in held.all_told() if each.leaving] == [process]

    def test_an_order_takes_out_what_is_being_loaded_at_this_moment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with self.holder() as held:
            order = of_a_subject(1)
            held.takes(SUBJECT, order.id)
            held.sealer.forget_all()
            load = held._keyring.secrets

            def slowly(refs: list[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
                found = load(refs, create=create)
                held.orders(order)
                held.has_followed(1)
                return found

            monkeypatch.setattr(held._keyring, "secrets", slowly)
            assert held.sealer.secrets(secrets_of([order]), create=False)
            assert not held.holds(SUBJECT, order.id)
