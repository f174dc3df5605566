"""Erasures, and the policy of a workspace, as the clients see them. Pure but for the waiting: the clients send."""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from session_streams.errors import ErasureTakesLonger
from session_streams.models import Answer, Body, encoded
from session_streams.recovery import Source
from session_streams.requests import JSON, Request, new_key, session_path

Step = Literal["accepted", "destroyed", "enforced", "complete"]
STEPS: Final[tuple[Step, ...]] = ("accepted", "destroyed", "enforced", "complete")

_POLICY: Final = "/v1/workspace/policy"
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


@dataclass(frozen=True)
class Awaited:
    """Who has not confirmed yet, and what."""

    holder: str
    reason: str


@dataclass(frozen=True)
class Erasure:
    """How an erasure goes. `scope_id` is a pseudonym or a session; times as RFC 3339, None where it is not that far. `receipts` are
    DSSE envelopes, one a step, that `session_streams.receipts` checks. What a request for it does not tell is empty."""

    erasure_id: str
    status: Step
    scope: Literal["subject", "session"]
    scope_id: str
    accepted_at: str
    destroyed_at: str | None
    enforced_at: str | None
    complete_at: str | None
    counts: Body
    awaited: tuple[Awaited, ...]
    receipts: tuple[Body, ...]
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Erasure":
        return cls(
            raw["erasure_id"],
            raw["status"],
            raw["scope"]["kind"],
            raw["scope"]["id"],
            raw["accepted_at"],
            raw.get("destroyed_at"),
            raw.get("enforced_at"),
            raw.get("complete_at"),
            raw.get("counts", {}),
            tuple(Awaited(each["holder"], each["reason"]) for each in raw.get("awaited", ())),
            tuple(raw.get("receipts", ())),
            raw,
        )

    def has_reached(self, step: Step) -> bool:
        return STEPS.index(self.status) >= STEPS.index(step)


@dataclass(frozen=True)
class Policy:
    """What is pinned to sessions that are created now. `source` is workspace, or installation where the workspace has none of its own."""

    mode: str
    content_window_days: int
    checkpoint_window_s: int
    source: str
    changed_at: str | None
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Policy":
        return cls(raw["mode"], raw["content_window_days"], raw["checkpoint_window_s"], raw["source"], raw["changed_at"], raw)


def erase_subject(subject: str, key: str | None) -> Request:
    # A dot is no path of its own, whoever normalises paths on the way.
    named = quote(subject, safe="").replace(".", "%2E")
    return Request("POST", f"/v1/subjects/{named}/erasures", _headers(key), {}, b"{}")


def erase_session(session_id: str, key: str | None) -> Request:
    return Request("DELETE", session_path(session_id), {"idempotency-key": key or new_key()})


def erasure(erasure_id: str) -> Request:
    return Request("GET", f"/v1/erasures/{quote(erasure_id, safe='')}")


def policy() -> Request:
    return Request("GET", _POLICY)


def set_policy(given: Body, key: str | None) -> Request:
    return Request("PUT", _POLICY, _headers(key), {}, encoded(given))


def _headers(key: str | None) -> dict[str, str]:
    return {"content-type": JSON, "idempotency-key": key or new_key()}


class _Waiting:
    """When to look again. Raises `ErasureTakesLonger` once the time is over."""

    def __init__(self, until: Step, timeout_s: float | None, clock: Callable[[], float]) -> None:
        self._until, self._timeout_s, self._clock = until, timeout_s, clock
        self._begun_s, self._pause_s = clock(), _FIRST_PAUSE_S
        self._before: Erasure | None = None

    def pause_s(self, now: Erasure) -> float | None:
        """None: it has got there."""
        if now.has_reached(self._until):
            return None
        if self._before is not None and (self._before.status, self._before.awaited) != (now.status, now.awaited):
            self._pause_s = _FIRST_PAUSE_S
        self._before = now
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if self._timeout_s is not None and self._clock() + pause_s - self._begun_s > self._timeout_s:
            raise ErasureTakesLonger(now.erasure_id, now.status, tuple(each.holder for each in now.awaited))
        return pause_s


class Erasures(ABC):
    """The calls of `Client`."""

    _sleep: Callable[[float], None]

    @abstractmethod
    def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    def erase_subject(self, subject: str, *, key: str | None = None) -> Erasure:
        """Erases a person all over the workspace, by your own id or by pseudonym (subj_...). It is accepted once this returns, and goes
        on by itself; asking again gives the same one. Once its secrets are destroyed your id leads nowhere any more (`NotFound`): keep
        `erasure_id`. Who returns is somebody else to the service."""
        return Erasure.of(self._send(erase_subject(subject, key)).json())

    def erase_session(self, session_id: str, *, key: str | None = None) -> Erasure:
        """As `erase_subject`, of one session; forks lose what they have of it."""
        return Erasure.of(self._send(erase_session(session_id, key)).json())

    def erasure(self, erasure_id: str) -> Erasure:
        return Erasure.of(self._send(erasure(erasure_id)).json())

    def wait_for_erasure(
        self,
        erasure_id: str,
        *,
        until: Step = "complete",
        timeout_s: float | None = None,
        on_progress: Callable[[Erasure], None] = lambda erasure: None,
    ) -> Erasure:
        """Looks again and again until it has got to `until`, and tells `on_progress` each time. Raises `ErasureTakesLonger`."""
        waiting = _Waiting(until, timeout_s, time.monotonic)
        while True:
            now = self.erasure(erasure_id)
            on_progress(now)
            pause_s = waiting.pause_s(now)
            if pause_s is None:
                return now
            self._sleep(pause_s)

    def policy(self) -> Policy:
        return Policy.of(self._send(policy()).json())

    def set_policy(self, *, mode: str, content_window_days: int, checkpoint_window_s: int, key: str | None = None) -> Policy:
        """Replaces the whole policy; it holds for sessions created after it. `mode` is standard or zdr."""
        given: dict[str, Any] = {"mode": mode, "content_window_days": content_window_days, "checkpoint_window_s": checkpoint_window_s}
        return Policy.of(self._send(set_policy(given, key)).json())


class AsyncErasures(ABC):
    """The calls of `AsyncClient`: each as in `Erasures`."""

    _sleep: Callable[[float], Awaitable[None]]

    @abstractmethod
    async def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    async def erase_subject(self, subject: str, *, key: str | None = None) -> Erasure:
        return Erasure.of((await self._send(erase_subject(subject, key))).json())

    async def erase_session(self, session_id: str, *, key: str | None = None) -> Erasure:
        return Erasure.of((await self._send(erase_session(session_id, key))).json())

    async def erasure(self, erasure_id: str) -> Erasure:
        return Erasure.of((await self._send(erasure(erasure_id))).json())

    async def wait_for_erasure(
        self,
        erasure_id: str,
        *,
        until: Step = "complete",
        timeout_s: float | None = None,
        on_progress: Callable[[Erasure], None] = lambda erasure: None,
    ) -> Erasure:
        waiting = _Waiting(until, timeout_s, time.monotonic)
        while True:
            now = await self.erasure(erasure_id)
            on_progress(now)
            pause_s = waiting.pause_s(now)
            if pause_s is None:
                return now
            await self._sleep(pause_s)

    async def policy(self) -> Policy:
        return Policy.of((await self._send(policy())).json())

    async def set_policy(self, *, mode: str, content_window_days: int, checkpoint_window_s: int, key: str | None = None) -> Policy:
        given: dict[str, Any] = {"mode": mode, "content_window_days": content_window_days, "checkpoint_window_s": checkpoint_window_s}
        return Policy.of((await self._send(set_policy(given, key))).json())
