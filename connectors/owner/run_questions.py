"""Questions about Runs, checkpoints, single events and what is not settled, of a projector's application (`connectors.owner.app`)."""

from collections.abc import Awaitable, Callable

import msgspec

from connectors.owner.asked import LIMIT_MAX, Receive, bounded, decoded, position, waited, while_asked
from connectors.owner.messages import (
    CheckpointsQuestion,
    ClaimableQuestion,
    ClaimedQuestion,
    EventNamedQuestion,
    ItemQuestion,
    UnsettledQuestion,
)
from streams.query.queries import LANES_MAX
from streams.query.reads import Reads

_event_named = msgspec.msgpack.Decoder(EventNamedQuestion)
_checkpoints = msgspec.msgpack.Decoder(CheckpointsQuestion)
_item = msgspec.msgpack.Decoder(ItemQuestion)
_unsettled = msgspec.msgpack.Decoder(UnsettledQuestion)
_claimable = msgspec.msgpack.Decoder(ClaimableQuestion)
_claimed = msgspec.msgpack.Decoder(ClaimedQuestion)


class RunQuestions:
    """`answers`: by the question's name, what answers its body."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.answers: dict[str, Callable[[bytes, Receive], Awaitable[object]]] = {
            "event_named": self._event_named,
            "checkpoints": self._checkpoints,
            "checkpoint": _item_by(reads.checkpoint),
            "run": _item_by(reads.run),
            "unsettled": self._unsettled,
            "claimable": self._claimable,
            "claimed": self._claimed,
        }

    async def _event_named(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _event_named)
        looking = self._reads.event_named(
            question.workspace_id,
            question.session_id,
            question.event_id,
            subject_id=question.subject_id,
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )
        return await while_asked(looking, receive)

    async def _checkpoints(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _checkpoints)
        return await self._reads.checkpoints(
            question.workspace_id,
            question.session_id,
            subject_id=question.subject_id,
            cursor=question.cursor,
            limit=bounded("limit", question.limit, 1, LIMIT_MAX),
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )

    async def _unsettled(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _unsettled)
        return await self._reads.unsettled(
            question.workspace_id,
            question.session_id,
            subject_id=question.subject_id,
            limit=bounded("limit", question.limit, 1, LIMIT_MAX),
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )

    async def _claimable(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _claimable)
        bounded("lanes", len(question.lanes), 1, LANES_MAX)
        bounded("partitions", len(question.partitions), 1, LIMIT_MAX)
        follow_s = waited(question.follow_s)
        found = self._reads.claimable(
            question.workspace_id,
            question.lanes,
            question.subject_id,
            partitions=question.partitions,
            limit=bounded("limit", question.limit, 1, LIMIT_MAX),
            start=question.start,
            follow_s=follow_s,
            wait_s=waited(question.wait_s),
        )
        return await (found if follow_s == 0 else while_asked(found, receive))

    async def _claimed(self, body: bytes, receive: Receive) -> object:
        question = decoded(body, _claimed)
        bounded("partitions", len(question.partitions), 1, LIMIT_MAX)
        return await self._reads.claimed(
            question.workspace_id,
            question.claim_digest,
            question.subject_id,
            partitions=question.partitions,
            wait_s=waited(question.wait_s),
        )


def _item_by(read: Callable[..., Awaitable[object]]) -> Callable[[bytes, Receive], Awaitable[object]]:
    """Answers an `ItemQuestion` by one of the reads of an item."""

    async def answer(body: bytes, receive: Receive) -> object:
        question = decoded(body, _item)
        return await read(
            question.workspace_id,
            question.session_id,
            question.item_id,
            subject_id=question.subject_id,
            position=position(question.position),
            wait_s=waited(question.wait_s),
        )

    return answer
