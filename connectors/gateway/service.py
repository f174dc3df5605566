"""What the routes share: the objects of one gateway, and the three things that all of them do with it.

`facts_of` finds what may be done with a session, `carry_out` takes a change to its outcome, `in_thread` keeps what
blocks off the event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeVar

from connectors.edge.agents import AgentCheckpoints
from connectors.edge.capsules import CapsuleDesk
from connectors.edge.compose import CommandComposer, Composed, Incoming, Naming, NewEvent, SessionFacts, facts_of_row
from connectors.edge.dead_letters import DeadLetters
from connectors.edge.erased import Erased, erased, people_of
from connectors.edge.erasures import ErasureService
from connectors.edge.keys import KeyTable
from connectors.edge.policies import PolicyAdministration, PolicyTable
from connectors.edge.principal import Principal
from connectors.edge.submit import Submitter
from connectors.gateway.call import Call
from connectors.gateway.guards import Admission, Budget, RateLimit, Shares
from connectors.gateway.lanes import LaneClaims
from connectors.gateway.limits import GatewayLimits
from connectors.gateway.metrics import Metrics
from connectors.gateway.opening import HELD_FROM_BYTES, TextGate
from connectors.gateway.owners import ErasureOwners, GraphOwners, Owners
from connectors.support.support import Support
from streams.clock import now_us
from streams.custody.keyring import SecretRef
from streams.custody.sealing import Sealer
from streams.errors import Invalid, NotPermitted, Overloaded, StreamsError
from streams.log.position import Position
from streams.log.topics import Topics
from streams.projections.sessions import SessionRow
from streams.sealed_blobs import LargeTexts, Snapshots
from streams.session.commands import Kind, Report
from streams.session.outcomes import ACCEPTED, Outcome
from streams.settings import Settings

T = TypeVar("T")

INLINE_BYTES_MAX: Final = 32 * 1024
"""Parsing or sealing this much costs about as much as the way to a thread and back."""


class Refused(Exception):
    """A recorded rejection, on its way to the endpoint."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


class FactsCache:
    """The least recently used sessions go first. Facts never change, so they never go stale.

    Who may not see a session is told nothing from here: the owner is asked as it is for a session that is not there.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, SessionFacts] = OrderedDict()

    def get(self, session_id: str, principal: Principal) -> SessionFacts | None:
        facts = self._entries.get(session_id)
        if facts is None or not principal.sees(facts.workspace_id, facts.subject_id):
            return None
        self._entries.move_to_end(session_id)
        return facts

    def put(self, facts: SessionFacts) -> None:
        self._entries[facts.session_id] = facts
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)


@dataclass(kw_only=True)
class Gateway:
    """Belongs to one event loop."""

    settings: Settings
    limits: GatewayLimits
    keys: KeyTable
    policies: PolicyTable
    administration: PolicyAdministration
    support: Support
    composer: CommandComposer
    submitter: Submitter
    sealer: Sealer
    snapshots: Snapshots
    owners: Owners
    graph_owners: GraphOwners
    agents: AgentCheckpoints
    erasures: ErasureService
    erasure_owners: ErasureOwners
    erased: Erased
    capsules: CapsuleDesk
    dead_letters: DeadLetters
    partition_of: Callable[[str], int]
    missing: Callable[[], list[str]] = list
    """What keeps the gateway from serving; empty when it is ready."""
    clock: Callable[[], int] = now_us
    metrics: Metrics = field(default_factory=Metrics)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        limits = self.limits
        self.facts = FactsCache(limits.facts_max)
        self.rate = RateLimit(limits.requests_per_s, limits.requests_burst)
        self.changes = Admission(limits.commands_max, "changes", patience_s=limits.patience_s)
        self.reads = Budget(limits.reads_max, "reads")
        # Of their own, so that neither sessions nor agents wait for what only the other's authority keeps waiting.
        self.agent_changes = Admission(limits.commands_max, "changes of agent checkpoints", patience_s=limits.patience_s)
        self.agent_changes.lateness = self.changes.lateness
        self.agent_reads = Budget(limits.reads_max, "reads of agent checkpoints")
        self.followers = Budget(limits.followers_max, "event streams")
        self.graphs = Budget(limits.graphs_max, "graphs")
        self.exports = Budget(limits.exports_max, "exports")
        self.claims = Budget(limits.claims_max, "claims")
        self.lanes = LaneClaims()
        self.transfers = Budget(limits.transfers_max, "transfers")
        self.transfer_shares = Shares(limits.transfers_of_a_key_max, "transfers")
        self.conversations = Budget(limits.conversations_max, "conversations")
        self.bodies = Budget(limits.bodies_bytes_max, "bytes of requests")
        self.opened = Budget(limits.opened_total_bytes_max, "bytes of large answers")
        self.budgets = (
            self.changes, self.reads, self.agent_changes, self.agent_reads, self.followers, self.graphs, self.exports, self.claims,
            self.transfers, self.conversations, self.bodies, self.opened,
        )  # fmt: skip
        self.pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="gateway")
        self.texts = LargeTexts(self.snapshots.blobs)
        self.text_gate = TextGate(self.texts.fetch_from_threads(asyncio.get_running_loop()))
        self.sealer.fetch_text = self.text_gate
        self.submitter.on_through = self.changes.done
        self.agents.on_through = self.agent_changes.done
        self.commands_topic = Topics(self.settings.topic_prefix).commands

    def budget(self, name: Literal["changes", "reads", "claims", "transfers"]) -> Budget:
        return {"changes": self.changes, "reads": self.reads, "claims": self.claims, "transfers": self.transfers}[name]

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Bounded by the budgets: nobody waits here who was not let in."""

        def work() -> T:
            with self.text_gate.leaving():
                return function()

        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """While opened content of so many bytes waits for its caller. Raises `Overloaded`."""
        counted = size if size >= HELD_FROM_BYTES else 0
        self.opened.take(counted)
        try:
            yield
        finally:
            self.opened.give_back(counted)

    def authenticate(self, call: Call) -> Principal:
        """Raises `NotPermitted`, `Retriable`."""
        principal = self.keys.principal(call.bearer(), self.clock())
        self.rate.take(principal.principal_id)
        return principal

    async def require_subject(self, principal: Principal) -> None:
        """A key that is restricted to an erased subject is revoked with it. Raises `NotPermitted`, `KeyringUnavailable`."""
        if principal.subject_id is not None and await self._is_erased(people_of(principal.workspace_id, principal.subject_id)):
            raise _revoked()

    async def require_not_erased(self, facts: SessionFacts, session_ids: Collection[str]) -> None:
        """Raises `ContentUnavailable` (content.erased) where the subject or one of these sessions is erased, and `KeyringUnavailable`."""
        if await self._is_erased(people_of(facts.workspace_id, facts.subject_id, *session_ids)):
            raise erased()

    async def _is_erased(self, people: Collection[SecretRef]) -> bool:
        known = self.erased.known(people)
        return await self.in_thread(partial(self.erased.ask, people)) if known is None else known

    def position_text(self, session_id: str, offset: int) -> str | None:
        """The position of a session's command; None where there is none."""
        return str(Position(self.commands_topic, self.partition_of(session_id), offset)) if offset >= 0 else None

    async def facts_of(self, call: Call, session_id: str) -> SessionFacts:
        """Raises `NotFound` also for what this principal may not see; what the owner raises where it must be asked."""
        facts = self.facts.get(session_id, call.principal)
        if facts is None:
            facts = facts_of_row(await self.session(call, session_id))
            self.facts.put(facts)
        return facts

    async def session(self, call: Call, session_id: str) -> SessionRow:
        """Raises `NotFound` also for what this principal may not see, and what the owner raises."""
        principal = call.principal
        row = await self.owners.session(
            principal.workspace_id, session_id, subject_id=principal.subject_id,
            position=call.position(), wait_s=self.limits.position_wait_s,
        )  # fmt: skip
        principal.require_sight_of(session_id, row.workspace_id, row.subject_id)
        return row

    async def upload_id(self, call: Call, facts: SessionFacts) -> str:
        """What the bytes of this request are called. Raises `KeyringUnavailable`."""
        incoming = call.incoming()
        if self.composer.knows(facts.workspace_id):
            return self.composer.upload_id(facts, incoming)
        return await self.in_thread(partial(self.composer.upload_id, facts, incoming))

    async def claim_digest(self, call: Call) -> str:
        """Of a claim by lane: by it a repeat is known again, and nothing else is. Raises `KeyringUnavailable`."""
        incoming = call.incoming()
        if self.composer.knows(incoming.principal.workspace_id):
            return self.composer.claim_digest(incoming)
        return await self.in_thread(partial(self.composer.claim_digest, incoming))

    def still(self, call: Call) -> None:
        """Looks again whether the caller may be answered: time passed since it was let in. Raises as `authenticate`."""
        principal = self.keys.principal(call.bearer(), self.clock())
        if principal.subject_id is not None and self.erased.known(people_of(principal.workspace_id, principal.subject_id)):
            raise _revoked()

    async def carry_out(
        self,
        call: Call,
        facts: SessionFacts,
        build: Callable[[Naming], Sequence[NewEvent]],
        *,
        kind: Kind = Kind.APPEND,
        report: Report | None = None,
        lease_ms: int | None = None,
        importing: bool = False,
        incoming: Incoming | None = None,
        expected_sequence: int | None = None,
    ) -> tuple[Outcome, Naming, list[str]]:
        """Seals and sends what `build` makes, and waits: the accepted outcome, the names, the ids of the events sent. `incoming`
        stands for the request where one request may lead to several commands, `expected_sequence` for what its caller expects.

        Raises `Refused`, `OutcomeUnknown`, `Overloaded`, `ContentUnavailable` (content.erased), and what composing raises.
        """
        incoming = incoming or call.incoming()
        expected = call.expected_sequence() if expected_sequence is None else expected_sequence
        if not self.composer.knows(facts.workspace_id):
            await self.in_thread(partial(self.composer.naming, facts, incoming))
        naming = self.composer.naming(facts, incoming)
        events = build(naming)
        if kind is Kind.APPEND and not self.composer.seals(facts, events):
            # What is sealed is refused by the keyring itself. A new session can only be somebody's who is erased.
            begins = bool(events) and events[0].type == "session.created"
            await self.require_not_erased(facts, () if begins else (facts.session_id,))
        compose = partial(
            self.composer.compose, incoming, facts, events, naming=naming,
            kind=kind, report=report, expected_sequence=expected, lease_ms=lease_ms, importing=importing, claiming=True,
        )  # fmt: skip
        blocks = len(call.body) > INLINE_BYTES_MAX or self.composer.needs_keyring(facts, events)
        composed = await self.in_thread(compose) if blocks else compose()
        outcome = await self._submitted(composed)
        if outcome.status != ACCEPTED:
            raise Refused(outcome)
        return outcome, naming, [draft.event_id for draft in composed.command.drafts]

    async def _submitted(self, composed: Composed) -> Outcome:
        """Stores the texts that the command claims, then sends it. They go again where nothing claims them."""
        texts = composed.texts
        if texts:
            await self.texts.put(texts)
            composed = self.composer.renewed(composed)
        try:
            outcome = await self.submitter.submit(composed)
        except StreamsError as error:
            self.metrics.submitted(error.code)
            if texts and isinstance(error, (Overloaded, Invalid)):
                await self.texts.drop(texts)
            raise
        self.metrics.submitted(outcome.code or outcome.status)
        if texts and (outcome.status != ACCEPTED or outcome.repeated):
            # The events of a repeat claim what was stored for them at the first time.
            await self.texts.drop(texts)
        return outcome


def _revoked() -> NotPermitted:
    return NotPermitted("the subject that this key is restricted to is erased", code="auth.revoked")
