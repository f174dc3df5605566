"""Agents' checkpoints: names, seals and sends a save; finds, judges and opens what is read (`connectors.edge.agents.AgentCheckpoints`).

What is not there, expired, erased, another agent's or another subject's than the key may touch is the same to who asks (design 06).
Pseudonyms and secrets come from caches while they are warm, and else in a thread; large states are sealed in a thread always.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

import structlog

from connectors.edge.agent_states import AgentState, AgentStates
from connectors.edge.agents import Caller, Checkpoint, Conflict, History, NewState, Written
from connectors.edge.submit import UnderWay
from streams.agents import core, records
from streams.agents.core import KINDS, AgentScope, Delete, Head, Save, Sealed
from streams.agents.ids import mint
from streams.agents.records import AgentCommand, AgentOutcome, encode_command
from streams.clock import now_us
from streams.custody.sealing import NotAtHand
from streams.errors import ContentUnavailable, OutcomeUnknown, Retriable
from streams.log.position import Position
from streams.session.words import CONTENT_ERASED

T = TypeVar("T")

INLINE_BYTES_MAX: Final = 32 * 1024
"""Sealing or opening this much costs about as much as the way to a thread and back."""

_log = structlog.get_logger(__name__)


class AgentRows(Protocol):
    """What `connectors.owner.agent_owners.AgentOwners` offers, and raises."""

    async def by_scope(self, scope: AgentScope) -> Head | None: ...

    async def by_id(self, workspace_id: str, checkpoint_id: str) -> Head | None: ...

    async def history(self, workspace_id: str, checkpoint_id: str, *, limit: int, before: int | None = None) -> tuple[Head, ...] | None: ...


class AgentSubmitter(UnderWay[AgentOutcome]):
    """Of what agents' checkpoints are asked."""

    async def submit(self, command_id: str, what: Save | Delete, issued_at: int) -> AgentOutcome:
        """The outcome, refusals included. Raises `Overloaded` (nothing was sent), `OutcomeUnknown`, `Invalid`."""
        correlation = self.next_correlation()
        command = AgentCommand(command_id=command_id, what=what, issued_at=issued_at, reply_to=self.reply_to, correlation=correlation)
        return await self.send(correlation, encode_command(command), what.scope.key, command_id)


class AgentService:
    """Belongs to one event loop."""

    def __init__(
        self,
        states: AgentStates,
        submitter: AgentSubmitter,
        rows: AgentRows,
        pool: Executor,
        *,
        topic: str,
        partition_of: Callable[[str], int],
        timeout_s: float,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`topic`: of commands, for positions; `partition_of` a key; `timeout_s`: how long a command may take until it is refused."""
        self._states, self._submitter, self._rows, self._pool = states, submitter, rows, pool
        self._topic, self._partition_of, self._clock = topic, partition_of, clock
        self._timeout_us = int(timeout_s * 1_000_000)

    @property
    def on_through(self) -> Callable[[float], None]:
        return self._submitter.on_through

    @on_through.setter
    def on_through(self, told: Callable[[float], None]) -> None:
        self._submitter.on_through = told

    async def save(self, caller: Caller, new: NewState) -> Written | Conflict | None:
        """As `AgentCheckpoints.save`. Raises `ContentUnavailable` never: a subject erased meanwhile is a retry of the caller."""
        command_id = _new_command_id()
        state = AgentState(new.subject_id, caller.agent_id, new.run_id, new.state)

        def sealed(ask: bool) -> tuple[AgentScope, Sealed] | None:
            scope = self._scope(caller, new.subject_id, new.kind, create=True, ask=ask)
            return None if scope is None else (scope, self._states.seal(scope, command_id, new.ttl_seconds, state, ask=ask))

        try:
            made = await self._at_hand(sealed, len(new.state))
        except ContentUnavailable as error:
            # Its pseudonym was at hand a moment longer than its secret: by then it has another.
            raise Retriable(f"subject: {error.detail}", retry_after_s=1) from error
        if made is None:
            return None
        scope, content = made
        partition = self._partition_of(scope.key)
        now = self._clock()
        what = Save(
            scope=scope, checkpoint_id=mint(partition), state_hash=new.state_hash, ttl_seconds=new.ttl_seconds, sealed=content,
            expected_state_hash=new.expected_state_hash, not_after=now + self._timeout_us,
        )  # fmt: skip
        outcome = await self._submitter.submit(command_id, what, now)
        if outcome.status == core.CONFLICT:
            return Conflict(outcome.state_hash)
        self._require(outcome, records.SAVED)
        return Written(
            checkpoint_id=outcome.checkpoint_id or "",
            updated=not outcome.created,
            version=outcome.version,
            state_hash=outcome.state_hash or "",
            updated_at=outcome.updated_at,
            expires_at=outcome.expires_at,
            position=str(Position(self._topic, partition, outcome.position_offset)),
        )

    async def at(self, caller: Caller, subject_id: str, kind: str) -> Checkpoint | None:
        if kind not in KINDS:
            return None
        scope = await self._at_hand(lambda ask: self._scope(caller, subject_id, kind, create=False, ask=ask))
        return None if scope is None else await self._shown(await self._rows.by_scope(scope))

    async def by_id(self, caller: Caller, checkpoint_id: str) -> Checkpoint | None:
        return await self._shown(await self._mine(caller, checkpoint_id))

    async def delete(self, caller: Caller, checkpoint_id: str) -> bool:
        head = await self._mine(caller, checkpoint_id)
        if head is None or await self._erased(head):
            return False
        now = self._clock()
        what = Delete(scope=head.scope, checkpoint_id=checkpoint_id, not_after=now + self._timeout_us)
        outcome = await self._submitter.submit(_new_command_id(), what, now)
        if outcome.status == core.ABSENT:
            return False
        self._require(outcome, records.DELETED)
        return True

    async def history(self, caller: Caller, checkpoint_id: str, *, limit: int, before: int | None = None) -> History | None:
        head = await self._mine(caller, checkpoint_id)
        if head is None or await self._shown(head) is None:
            return None
        found = await self._rows.history(caller.workspace_id, checkpoint_id, limit=limit + 1, before=before)
        if found is None:
            return None
        shown = [await self._shown(version) for version in found[:limit]]
        versions = tuple([version for version in shown if version is not None])
        return History(versions, found[limit - 1].version if len(found) > limit else None)

    async def _mine(self, caller: Caller, checkpoint_id: str) -> Head | None:
        """The row that has the id, if it is the caller's, expired or not."""
        head = await self._rows.by_id(caller.workspace_id, checkpoint_id)
        if head is None or caller.only_subject not in (None, head.scope.subject_id):
            return None
        agent = await self._at_hand(lambda ask: self._states.pseudonym(caller.workspace_id, "actor", caller.agent_id, ask=ask))
        return head if head.scope.workspace_id == caller.workspace_id and head.scope.agent_id == agent else None

    async def _shown(self, head: Head | None) -> Checkpoint | None:
        """Opened, unless it has expired or its subject is erased."""
        if head is None or not head.visible(self._clock()):
            return None
        try:
            state = await self._opened(head)
        except ContentUnavailable as error:
            _log.info("agent_state_closed", checkpoint_id=head.checkpoint_id, code=error.code)
            return None
        return Checkpoint(
            checkpoint_id=head.checkpoint_id,
            subject_id=state.subject_id,
            agent_id=state.agent_id,
            run_id=state.run_id,
            kind=head.scope.kind,
            state=state.state,
            state_hash=head.state_hash,
            ttl_seconds=head.ttl_seconds,
            version=head.version,
            created_at=head.created_at,
            updated_at=head.updated_at,
            expires_at=head.expires_at,
        )

    async def _erased(self, head: Head) -> bool:
        """Whether its subject is. Its row, which nobody can open, may be there still."""
        try:
            await self._opened(head)
        except ContentUnavailable as error:
            return error.code == CONTENT_ERASED
        return False

    async def _opened(self, head: Head) -> AgentState:
        """Raises `ContentUnavailable`."""
        return await self._at_hand(lambda ask: self._states.open(head, ask=ask), len(head.sealed.ciphertext))

    def _scope(self, caller: Caller, subject_id: str, kind: str, *, create: bool, ask: bool) -> AgentScope | None:
        if caller.only_subject is not None:
            known = self._states.pseudonym(caller.workspace_id, "subject", subject_id, ask=ask)
            if known != caller.only_subject:
                return None
        return self._states.scope(caller.workspace_id, subject_id, caller.agent_id, kind, create=create, ask=ask)

    async def _at_hand(self, work: Callable[[bool], T], size: int = 0) -> T:
        """Here while everything is at hand; else, or where it is much work, in a thread, which may ask."""
        if size <= INLINE_BYTES_MAX:
            try:
                return work(False)
            except NotAtHand:
                pass
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, True)

    def _require(self, outcome: AgentOutcome, status: str) -> None:
        if outcome.status != status:
            raise OutcomeUnknown(f"{outcome.command_id} was not decided in time ({outcome.status})")


def _new_command_id() -> str:
    """Random: a request is one command, and a repeat of it is another one (design 06, 1.5)."""
    return f"cmd_{secrets.token_hex(16)}"
