"""Erasures by way of the process that decides them: the group of the retention driver names it."""

import time
from typing import Final

import msgspec

from connectors.owner.asker import Asker, FindsOwners
from connectors.owner.messages import ErasureAnswer, ErasureQuestion
from streams.log.owners import GroupOwners
from streams.log.topics import Topics
from streams.retention.driver import ROLE
from streams.settings import Settings

WAIT_S: Final = 5.0
_answer = msgspec.msgpack.Decoder(ErasureAnswer | None).decode


class ErasureOwners(Asker):
    """Belongs to one event loop. Raises `Retriable`s."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        super().__init__(1, token, finder or GroupOwners(settings, ROLE, Topics(settings.topic_prefix).workspace_commands))

    async def erasure(self, workspace_id: str, erasure_id: str, *, wait_s: float = WAIT_S) -> ErasureAnswer | None:
        """None: the workspace has no such erasure."""

        def question(left_s: float) -> ErasureQuestion:
            return ErasureQuestion(workspace_id, erasure_id, left_s)

        return await self._ask(0, "erasure", question, _answer, time.monotonic() + wait_s)
