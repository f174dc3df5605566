"""Agent checkpoints: what an agent keeps for itself to go on from, and no evidence of anything. Saved over, and gone once expired.

Recovery material of a session is something else: `recovery` has that.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

import httpx

from session_streams.errors import ApiError, ConnectionFailed
from session_streams.models import Answer, Body, encoded
from session_streams.recovery import Source
from session_streams.requests import JSON, Request

Kind = Literal["task_state", "conversation", "workflow", "cursor"]

_PATH: Final = "/v1/checkpoints"
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class SavedCheckpoint:
    """`updated`: it was saved over one of the same subject, agent and kind. `expires_at` as RFC 3339."""

    checkpoint_id: str
    state_hash: str
    expires_at: str
    updated: bool
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, answer: Answer) -> "SavedCheckpoint":
        raw = answer.json()["data"]
        return cls(raw["checkpoint_id"], raw["state_hash"], raw["expires_at"], raw["updated"], raw)


@dataclass(frozen=True)
class AgentCheckpoint:
    """As it stands. `state` as JSON has it, numbers as JavaScript writes them. Times as RFC 3339."""

    checkpoint_id: str
    subject_id: str
    agent_id: str
    run_id: str | None
    kind: str
    state: Any
    state_hash: str
    ttl_seconds: int
    expires_at: str
    created_at: str
    updated_at: str
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, answer: Answer) -> "AgentCheckpoint":
        raw = answer.json()["data"]
        return cls(
            raw["checkpoint_id"], raw["subject_id"], raw["agent_id"], raw["run_id"], raw["kind"], raw["state"], raw["state_hash"],
            raw["ttl_seconds"], raw["expires_at"], raw["created_at"], raw["updated_at"], raw,
        )  # fmt: skip


def save(
    subject_id: str, kind: str, state: Any, ttl_seconds: int, run_id: str | None, agent_id: str | None, expected_state_hash: str | None
) -> Request:
    optional = {"run_id": run_id, "agent_id": agent_id, "expected_state_hash": expected_state_hash}
    body = {"subject_id": subject_id, "kind": kind, "state": state, "ttl_seconds": ttl_seconds}
    body.update({name: value for name, value in optional.items() if value is not None})
    return Request("POST", _PATH, {"content-type": JSON}, {}, encoded(body), once=expected_state_hash is not None)


def get(subject_id: str, kind: str, agent_id: str | None) -> Request:
    given = {"subject_id": subject_id, "kind": kind, "agent_id": agent_id}
    return Request("GET", _PATH, {}, {name: value for name, value in given.items() if value is not None})


def by_id(checkpoint_id: str) -> Request:
    return Request("GET", _named(checkpoint_id))


def delete(checkpoint_id: str) -> Request:
    return Request("DELETE", _named(checkpoint_id))


def history(checkpoint_id: str, before: int | None, limit: int) -> Request:
    params = {"limit": str(limit), **({} if before is None else {"before": str(before)})}
    return Request("GET", f"{_named(checkpoint_id)}/history", {}, params)


def _named(checkpoint_id: str) -> str:
    return f"{_PATH}/{quote(checkpoint_id, safe='')}"


def undecided(failure: ApiError | ConnectionFailed) -> bool:
    """Whether nothing can have come of the attempt: it never left, did not arrive whole, or was one too many."""
    if isinstance(failure, ApiError):
        return failure.status in (408, 429)
    return isinstance(failure.__cause__, _NEVER_SENT)


class AgentCheckpoints(ABC):
    """The calls of `Client`."""

    @abstractmethod
    def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    def save_checkpoint(
        self,
        subject_id: str,
        kind: Kind,
        state: Any,
        *,
        ttl_seconds: int,
        run_id: str | None = None,
        agent_id: str | None = None,
        expected_state_hash: str | None = None,
    ) -> SavedCheckpoint:
        """Saves over what this agent had of the subject and kind; `state` is any JSON but null, `ttl_seconds` 60 to 2,592,000.

        The last save wins, and one that is tried again is a save like any other: `updated` is true where the first attempt came
        through, its time begins anew, and it wins over what was saved meanwhile. With `expected_state_hash`, `Conflict` is raised where the
        state that is there has another, or none is there; such a save is tried again only where nothing can have come of it, so
        that it is never refused because of itself: after `ConnectionFailed` or `Unavailable`, `get_checkpoint` tells.
        """
        return SavedCheckpoint.of(self._send(save(subject_id, kind, state, ttl_seconds, run_id, agent_id, expected_state_hash)))

    def get_checkpoint(self, subject_id: str, kind: Kind, *, agent_id: str | None = None) -> AgentCheckpoint:
        """Raises `NotFound` for what is not there, is expired, or is another agent's. `agent_id` is this key's own unless given."""
        return AgentCheckpoint.of(self._send(get(subject_id, kind, agent_id)))

    def get_checkpoint_by_id(self, checkpoint_id: str) -> AgentCheckpoint:
        """Raises as `get_checkpoint`."""
        return AgentCheckpoint.of(self._send(by_id(checkpoint_id)))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Raises `NotFound` as well where an earlier attempt of this call came through and its answer was lost."""
        self._send(delete(checkpoint_id))

    def checkpoint_history(self, checkpoint_id: str, *, page_size: int = 20) -> Iterator[Body]:
        """What was saved under this id, newest first, as far as it is kept and not expired."""
        before: int | None = None
        while True:
            page = self._send(history(checkpoint_id, before, page_size)).json()["data"]
            yield from page["versions"]
            before = page["next_before"]
            if before is None:
                return


class AsyncAgentCheckpoints(ABC):
    """The calls of `AsyncClient`: each as in `AgentCheckpoints`."""

    @abstractmethod
    async def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    async def save_checkpoint(
        self,
        subject_id: str,
        kind: Kind,
        state: Any,
        *,
        ttl_seconds: int,
        run_id: str | None = None,
        agent_id: str | None = None,
        expected_state_hash: str | None = None,
    ) -> SavedCheckpoint:
        return SavedCheckpoint.of(await self._send(save(subject_id, kind, state, ttl_seconds, run_id, agent_id, expected_state_hash)))

    async def get_checkpoint(self, subject_id: str, kind: Kind, *, agent_id: str | None = None) -> AgentCheckpoint:
        return AgentCheckpoint.of(await self._send(get(subject_id, kind, agent_id)))

    async def get_checkpoint_by_id(self, checkpoint_id: str) -> AgentCheckpoint:
        return AgentCheckpoint.of(await self._send(by_id(checkpoint_id)))

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        await self._send(delete(checkpoint_id))

    async def checkpoint_history(self, checkpoint_id: str, *, page_size: int = 20) -> AsyncIterator[Body]:
        before: int | None = None
        while True:
            page = (await self._send(history(checkpoint_id, before, page_size))).json()["data"]
            for version in page["versions"]:
                yield version
            before = page["next_before"]
            if before is None:
                return
