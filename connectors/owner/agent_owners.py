"""Agents' checkpoints by way of the processes that decide them: the group of the agents role names them."""

import time
from typing import Final

import msgspec

from connectors.owner.asker import Asker, FindsOwners
from connectors.owner.messages import AgentHistoryQuestion, AgentIdQuestion, AgentScopeQuestion
from streams.agents.authority import ROLE
from streams.agents.core import AgentScope, Head
from streams.agents.ids import partition_of_id
from streams.agents.records import decode_checkpoint
from streams.log.owners import GroupOwners
from streams.log.partitioner import partition_of
from streams.log.topics import Topics
from streams.settings import Settings

WAIT_S: Final = 5.0

_value = msgspec.msgpack.Decoder(bytes | None).decode
_values = msgspec.msgpack.Decoder(tuple[bytes, ...] | None).decode


class AgentOwners(Asker):
    """Belongs to one event loop. Gives rows whether they have expired or not. All raise `Retriable`s; `RecordUnreadable` for a row that
    is none."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        super().__init__(settings.partitions, token, finder or GroupOwners(settings, ROLE, Topics(settings.topic_prefix).agent_commands))

    async def by_scope(self, scope: AgentScope, *, wait_s: float = WAIT_S) -> Head | None:
        key, partition = scope.key, partition_of(scope.key.encode(), self._partitions)
        return _head(
            await self._ask(partition, "agent_scope", lambda left_s: AgentScopeQuestion(key, left_s), _value, time.monotonic() + wait_s)
        )

    async def by_id(self, workspace_id: str, checkpoint_id: str, *, wait_s: float = WAIT_S) -> Head | None:
        partition = partition_of_id(checkpoint_id, self._partitions)
        if partition is None:
            return None

        def question(left_s: float) -> AgentIdQuestion:
            return AgentIdQuestion(workspace_id, checkpoint_id, left_s)

        head = _head(await self._ask(partition, "agent_id", question, _value, time.monotonic() + wait_s))
        # Its scope may have been deleted and saved anew between the two look-ups.
        return head if head is not None and head.checkpoint_id == checkpoint_id else None

    async def history(
        self, workspace_id: str, checkpoint_id: str, *, limit: int, before: int | None = None, wait_s: float = WAIT_S
    ) -> tuple[Head, ...] | None:
        """At most `limit` versions below `before`, newest first; None: no row has the id."""
        partition = partition_of_id(checkpoint_id, self._partitions)
        if partition is None:
            return None

        def question(left_s: float) -> AgentHistoryQuestion:
            return AgentHistoryQuestion(workspace_id, checkpoint_id, limit, before, left_s)

        values = await self._ask(partition, "agent_history", question, _values, time.monotonic() + wait_s)
        if values is None:
            return None
        versions = [decode_checkpoint(value) for value in values]
        return tuple([version for version in versions if version.checkpoint_id == checkpoint_id])


def _head(value: bytes | None) -> Head | None:
    return None if value is None else decode_checkpoint(value)
