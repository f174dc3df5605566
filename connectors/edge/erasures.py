"""Asks for erasures: whose, under which pseudonym, and what the custodian answered.

- Who is to be erased is named by an outside id or by a pseudonym. Neither a log nor an answer repeats an outside id.
- A thing is erased once, under a name that follows from it, so the same may be asked again and again.
- An erasure forgets which pseudonym an outside id had. Whoever repeats a request whose answer was lost is led by its Idempotency-Key,
  which is kept for an hour as a keyed hash, in this process only.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Literal

from msgspec import Struct

from connectors.edge.principal import Principal
from connectors.edge.submit import UnderWay
from streams.clock import now_us
from streams.custody.keyring import Keyring, SecretRef
from streams.errors import NotFound, OutcomeUnknown, Retriable
from streams.log.position import Position
from streams.log.retention import (
    ERASE_SESSION,
    ERASE_SUBJECT,
    KNOWN,
    LATE,
    SUBJECT,
    WorkspaceCommand,
    WorkspaceOutcome,
    encode_workspace_command,
    erasure_id_of,
)
from streams.session.ids import derive_keyed, is_id

Scope = Literal["subject", "session"]

_ACTIONS: Final[dict[str, str]] = {"subject": ERASE_SUBJECT, "session": ERASE_SESSION}
_REMEMBERED_S: Final = 3_600.0
_REMEMBERED_MAX: Final = 10_000


class Asked(Struct, frozen=True, kw_only=True):
    """`known`: it was asked for before. `accepted_at` in microseconds since the epoch, of one that is new; `position` is text."""

    erasure_id: str
    known: bool
    accepted_at: int
    position: str


class ErasureSubmitter(UnderWay[WorkspaceOutcome]):
    """Of what the custodian is asked."""

    async def submit(self, command_id: str, workspace_id: str, scope: Scope, target_id: str, principal_id: str, issued_at: int,
                     not_after: int) -> WorkspaceOutcome:  # fmt: skip
        """Raises `Overloaded` (nothing was sent), `OutcomeUnknown`."""
        correlation = self.next_correlation()
        command = WorkspaceCommand(
            command_id=command_id, workspace_id=workspace_id, action=_ACTIONS[scope], target_id=target_id, principal_id=principal_id,
            issued_at=issued_at, not_after=not_after, reply_to=self.reply_to, correlation=correlation,
        )  # fmt: skip
        return await self.send(correlation, encode_workspace_command(command), workspace_id, command_id)


class ErasureService:
    """Belongs to one event loop."""

    def __init__(
        self,
        keyring: Keyring,
        submitter: ErasureSubmitter,
        pool: Executor,
        *,
        topic: str,
        timeout_s: float,
        clock: Callable[[], int] = now_us,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`topic`: of commands, for positions; `timeout_s`: how long a command may take until it is refused."""
        self._keyring, self._submitter, self._pool = keyring, submitter, pool
        self._topic, self._timeout_us, self._clock = topic, int(timeout_s * 1_000_000), clock
        self._asked = _Asked(elapsed)

    async def subject(self, principal: Principal, named: str, idempotency_key: str) -> str:
        """The pseudonym of whom an outside id or a pseudonym names. Raises `NotFound`, also for whom the key may not touch, and
        `KeyringUnavailable`."""
        subject_id, request = await asyncio.get_running_loop().run_in_executor(
            self._pool, self._resolved, principal, named, idempotency_key
        )
        # First whom the request meant: who was erased by it may have returned, and is somebody else since.
        subject_id = self._asked.of(request) or subject_id
        if subject_id is None or principal.subject_id not in (None, subject_id):
            raise NotFound("no such subject")
        self._asked.remember(request, subject_id)
        return subject_id

    async def erase(self, principal: Principal, scope: Scope, target_id: str) -> Asked:
        """Raises `OutcomeUnknown`: the same again finds out. `Overloaded`, `Retriable` (request.expired): nothing came of it."""
        workspace_id, erasure_id = principal.workspace_id, erasure_id_of(principal.workspace_id, scope, target_id)
        now = self._clock()
        # No command is remembered: who asks again is answered by what is erased.
        command_id = f"cmd_{secrets.token_hex(16)}"
        try:
            outcome = await self._submitter.submit(
                command_id, workspace_id, scope, target_id, principal.principal_id, now, now + self._timeout_us
            )
        except OutcomeUnknown as error:
            raise OutcomeUnknown(f"{erasure_id} may be accepted: {error.detail}", retry_after_s=error.retry_after_s) from error
        if outcome.status == LATE:
            raise Retriable("the request was not decided in time", code="request.expired")
        return Asked(
            erasure_id=outcome.erasure_id or erasure_id,
            known=outcome.status == KNOWN,
            accepted_at=outcome.decided_at,
            position=str(Position(self._topic, 0, outcome.position_offset)),
        )

    def _resolved(self, principal: Principal, named: str, idempotency_key: str) -> tuple[str | None, str]:
        """The pseudonym, where there is one, and what the request is remembered by. Blocks on the keyring."""
        workspace_id, keyring = principal.workspace_id, self._keyring
        request = derive_keyed("cmd", keyring.identity_key(workspace_id), workspace_id, principal.principal_id, idempotency_key, named)
        if not is_id(named, "subj"):
            return keyring.pseudonym(workspace_id, SUBJECT, named, create=False), request
        refs = (SecretRef("subject", workspace_id, named),)
        # A subject without content has no secret, and is somebody all the same.
        known = keyring.is_named(workspace_id, named) or keyring.secrets(refs, create=False) or keyring.destroyed(refs)
        return (named if known else None), request


class _Asked:
    """Whose erasure was asked for under which request."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._subjects: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def of(self, request: str) -> str | None:
        until_s, subject_id = self._subjects.get(request, (0.0, None))
        return subject_id if until_s > self._elapsed() else None

    def remember(self, request: str, subject_id: str) -> None:
        self._subjects[request] = (self._elapsed() + _REMEMBERED_S, subject_id)
        self._subjects.move_to_end(request)
        while len(self._subjects) > _REMEMBERED_MAX:
            self._subjects.popitem(last=False)
