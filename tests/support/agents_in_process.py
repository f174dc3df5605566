"""The service of agents' checkpoints over one authority in the same process: no broker, and everything else as it is."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from connectors.edge.agent_service import AgentService, AgentSubmitter
from connectors.edge.agent_states import AgentStates
from streams.agents import rows
from streams.agents.authority import AgentAuthority
from streams.agents.core import AgentScope, Head
from streams.agents.records import decode_outcomes
from streams.custody.keyring import Keyring
from streams.custody.sealing import Sealer
from streams.errors import StreamsError
from streams.log.reader import Record
from streams.log.topics import Topics
from streams.loop.step import Step
from streams.settings import Settings
from streams.store.memory import MemoryStore

SETTINGS = Settings(partitions=1)
TOPICS = Topics("")


class OneAuthority:
    """Decides each command as it comes, and answers reads: commands, outcomes and rows in one."""

    def __init__(self, sealer: Sealer, clock: Callable[[], int]) -> None:
        self._authority, self._clock = AgentAuthority(SETTINGS, sealer), clock
        self.store = MemoryStore()
        self.submitter: AgentSubmitter | None = None
        self._offset = 0
        self.deaf = False
        """Nothing is decided."""

    def send(self, value: bytes, key: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None:
        record = Record(TOPICS.agent_commands, 0, self._offset, key.encode(), value, 0)
        self._offset += 1
        if self.deaf:
            return
        step = Step(0, self.store, [record], self._clock(), 0)
        self._authority.handle(step)
        self._authority.tick(step)
        self.store.write([*step.changelog.items(), *step.local.items()], {})
        assert self.submitter is not None
        for output in step.outputs:
            assert output.topic == TOPICS.agent_outcomes
            self.submitter.settle_from_thread(decode_outcomes(output.value or b""))

    async def by_scope(self, scope: AgentScope) -> Head | None:
        value = self.store.get(rows.head_key(scope.key))
        return None if value is None else rows.stored(value)

    async def by_id(self, workspace_id: str, checkpoint_id: str) -> Head | None:
        key = self.store.get(rows.id_key(checkpoint_id))
        value = self.store.get(key) if key is not None and key.startswith(workspace_id.encode()) else None
        return None if value is None else rows.stored(value)

    async def history(self, workspace_id: str, checkpoint_id: str, *, limit: int, before: int | None = None) -> tuple[Head, ...] | None:
        head = await self.by_id(workspace_id, checkpoint_id)
        if head is None:
            return None
        with self.store.scan(rows.head_key(head.scope.key), reverse=True) as pairs:
            versions = sorted([rows.stored(value) for _, value in pairs], key=lambda each: -each.version)
        return tuple([each for each in versions if before is None or each.version < before][:limit])


@asynccontextmanager
async def service(keyring: Keyring, sealer: Sealer, clock: Callable[[], int], timeout_s: float = 5.0) -> AsyncIterator[AgentService]:
    authority = OneAuthority(sealer, clock)
    authority.submitter = AgentSubmitter(authority, "test/1", timeout_s=timeout_s)
    with ThreadPoolExecutor(2) as pool:
        states = AgentStates(keyring, sealer, cache_seconds=10, clock=clock)
        yield AgentService(
            states, authority.submitter, authority, pool, topic=TOPICS.agent_commands, partition_of=lambda key: 0, timeout_s=timeout_s,
            clock=clock,
        )  # fmt: skip
