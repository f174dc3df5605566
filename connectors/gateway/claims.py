"""Routes by which a worker comes to hold a Run: this one, any of some lanes, and in the place of an attempt that was ready.

- A claim by lane asks for Runs that the tables hold for claimable and sends the claim of one after the other, until the authority
  grants one: of several who try a Run, exactly one is granted it. A Run that somebody else got, or that settled meanwhile, is passed over.
- The order in which the first few are tried is drawn for each claim anew, and the same for a repeat of it. What other claims of this
  gateway are after is left to them (`lanes`).
- A repeat finds the attempt that it was granted by the claim's digest, a keyed hash of workspace, principal and Idempotency-Key,
  and is told the same grant. Once that attempt has ended there is nothing to repeat: another Run may be granted.
- A Run whose history cannot be read whole is left to workers that cope (`incomplete_ok`). Where no other Run came within `wait_ms`,
  the claim is refused with runtime.session_history_unavailable, of the first such Run.
- Who waits holds no place among the changes.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from msgspec import structs

from connectors.edge.compose import Incoming, Naming, NewEvent
from connectors.gateway import bodies
from connectors.gateway.answers import Answer
from connectors.gateway.call import Call, Disconnected
from connectors.gateway.changes import Done
from connectors.gateway.lanes import Turns
from connectors.gateway.recovery_views import Claimed, claimed
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway, Refused
from connectors.gateway.streaming import gone
from connectors.support.statement import ExactTuple
from streams.errors import NotFound, OutcomeUnknown, StreamsError
from streams.projections.runs import LanePlace, RunRow, lane_place
from streams.session import refusals
from streams.session.commands import Kind
from streams.session.events import AttemptAttributes
from streams.session.outcomes import Outcome

_RUN: Final = "/v1/sessions/{session_id}/runs/{run_id}"
_FEW: Final = 8
"""Of the oldest claimable Runs that a claim by lane asks for, beside those that it was refused and those that others here are after:
among so many the claims of several gateways seldom try the same one."""
_EACH: Final = 2
"""Runs that another claim keeps from this one: one that it is after, and one that was just granted and is in the tables still."""
_MANY: Final = 100
_PAUSE_S: Final = 0.1
"""Before the tables are asked again where nothing that they told was granted."""
_LONGEST_PAUSE_S: Final = 1.0
_TAKEN: Final = frozenset(
    {
        refusals.NOT_CLAIMABLE, refusals.ALREADY_SETTLED, refusals.ATTEMPT_FENCED, refusals.REPLACEMENT_UNAVAILABLE,
        refusals.RUN_UNAVAILABLE, refusals.SESSION_CLOSED, refusals.SEQUENCE_CONFLICT, refusals.NOT_FOUND,
    }
)  # fmt: skip
"""Refusals of one Run that say nothing against the next."""
_ONE_CLAIMS: Final = frozenset({refusals.HISTORY_UNAVAILABLE, refusals.SEQUENCE_CONFLICT})
"""Refusals for what one claim asks for: another may be granted the Run."""


async def claim(gateway: Gateway, call: Call, body: bodies.ClaimRun) -> Answer:
    def event(naming: Naming) -> NewEvent:
        # The command's id is a keyed hash of the Idempotency-Key: it says which claim this is, and nothing else.
        return _started(call.path["run_id"], body, naming.command_id.removeprefix("cmd_"))

    return claimed(await _sent(gateway, call, call.path["session_id"], event, body.lease_ms, Kind.CLAIM))


async def replace(gateway: Gateway, call: Call, body: bodies.ReplaceAttempt) -> Answer:
    support = gateway.support
    exact = ExactTuple(
        release=support.release, driver=body.driver, sandbox_provider_revision=body.sandbox_provider_revision, policy=body.policy,
        execution_target=body.execution_target, harness_revision=body.harness_revision, environment_revision=body.environment_revision,
    )  # fmt: skip
    # Without it the authority says everything that is missing, this included.
    verified = await gateway.in_thread(partial(support.verification_for, exact))

    def event(naming: Naming) -> NewEvent:
        attributes = AttemptAttributes(
            claim_digest=naming.command_id.removeprefix("cmd_"),
            incomplete_ok=body.incomplete_ok or None,
            harness_revision=body.harness_revision,
            environment_revision=body.environment_revision,
            replaces=body.replaces,
            frontier_sequence=body.frontier_sequence,
            verification_digest=None if verified is None else verified[0],
            verified_at=None if verified is None else verified[1],
        )
        return NewEvent(type="attempt.started", run_id=call.path["run_id"], attributes=attributes)

    return claimed(await _sent(gateway, call, call.path["session_id"], event, body.lease_ms, Kind.REPLACE))


async def claim_next(gateway: Gateway, call: Call, body: bodies.ClaimNext) -> Answer:
    until_s = time.monotonic() + body.wait_ms / 1000
    call.expected_sequence()  # refused where it is malformed, whether there is a Run or not
    digest = await gateway.claim_digest(call)
    with gateway.lanes.turns(digest) as turns:
        return await _found(_Search(gateway, call, body, digest, turns), until_s)


async def _found(search: "_Search", until_s: float) -> Answer:
    gateway, call = search.gateway, search.call
    ends = [asyncio.create_task(gone(call.receive)), asyncio.create_task(gateway.stopping.wait())]
    try:
        answer = await search.again()
        pause_s = _PAUSE_S
        while answer is None:
            wait_ms = max(0, int((until_s - time.monotonic()) * 1000))
            asked = asyncio.create_task(search.found(wait_ms))
            await asyncio.wait([asked, *ends], return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in ends):
                asked.cancel()
                break
            rows = await asked
            # The caller may have lost its key while it waited.
            gateway.still(call)
            answer = await search.first_granted(rows)
            # Those that nobody may take just now keep nobody from the ones behind them.
            if answer is None and (search.behind is None or time.monotonic() >= until_s):
                pause_s = min(pause_s, until_s - time.monotonic())
                if pause_s <= 0:
                    break
                await asyncio.wait(ends, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if answer is None and ends[0].done():
            raise Disconnected
    finally:
        for task in ends:
            task.cancel()
    if answer is None and search.unreadable is not None:
        raise Refused(search.unreadable)
    return answer or Answer(204, content_type=None)


class _Search:
    """One claim by lane. `unreadable` is the first refusal of a Run whose history cannot be read whole."""

    def __init__(self, gateway: Gateway, call: Call, body: bodies.ClaimNext, digest: str, turns: Turns) -> None:
        self.unreadable: Outcome | None = None
        self.gateway, self.call, self._body, self._digest = gateway, call, body, digest
        self._turns, self._had = turns, turns.had
        self._copes_with = (body.incomplete_ok, body.harness_revision, body.environment_revision)
        self._passed: set[tuple[str, int]] = set()
        """Runs, at a generation, that were refused."""
        self.behind: LanePlace | None = None
        """Up to where all were passed over, while there may be more behind."""

    async def again(self) -> Answer | None:
        """The grant that this very claim was given before, while its attempt lives."""
        principal, gateway = self.call.principal, self.gateway
        row = await gateway.owners.claimed(
            principal.workspace_id, self._digest, subject_id=principal.subject_id, wait_s=gateway.limits.position_wait_s
        )
        return None if row is None else await self._granted(row, row.generation)

    async def found(self, wait_ms: int) -> Sequence[RunRow]:
        principal, gateway = self.call.principal, self.gateway
        limit = min(_FEW + _EACH * gateway.claims.taken + len(self._passed), _MANY)
        rows = await gateway.owners.claimable(
            principal.workspace_id, self._body.lanes, subject_id=principal.subject_id, limit=limit, start=self.behind,
            wait_ms=wait_ms if self.behind is None else 0, wait_s=gateway.limits.position_wait_s,
        )  # fmt: skip
        self.behind = lane_place(rows[-1]) if len(rows) >= limit else None
        return rows

    async def first_granted(self, rows: Sequence[RunRow]) -> Answer | None:
        """Raises `Refused` for what is no Run's fault, and what sending a command raises."""
        turns = self._turns
        async with turns.lock:
            try:
                # What a repeat was granted meanwhile is not among the rows any more.
                answer = await self.again() if turns.had != self._had else None
                return answer or await self._first_of(rows)
            finally:
                turns.had += 1
                self._had = turns.had

    async def _first_of(self, rows: Sequence[RunRow]) -> Answer | None:
        lanes, digest = self.gateway.lanes, self._digest

        def turn(row: RunRow) -> tuple[bool, bytes]:
            return not lanes.is_mine(digest, row), hashlib.sha256(f"{digest}{row.run_id}".encode()).digest()

        for row in sorted(rows, key=turn):
            # Others may have begun while this one waited for an answer.
            if (row.run_id, row.generation) in self._passed:
                continue
            self.unreadable = self.unreadable or lanes.unreadable(row, self._copes_with)
            if lanes.is_left_for(digest, row) and lanes.unreadable(row, self._copes_with) is None:
                answer = await self._granted(row, row.generation + 1)
                if answer is not None:
                    return answer
                self._passed.add((row.run_id, row.generation))
        return None

    async def _granted(self, row: RunRow, generation: int) -> Answer | None:
        """`generation` is the one to be granted: a Run that was lost may be claimed again once that attempt has ended."""
        gateway, body = self.gateway, self._body
        incoming = self.call.incoming()
        # The digest holds the principal: the same key of another one is another claim. No caller's key has a line break in it.
        of_run = structs.replace(incoming, idempotency_key=f"{self._digest}\n{row.run_id}\n{generation}")

        def event(_: Naming) -> NewEvent:
            return _started(row.run_id, body, self._digest)

        gateway.changes.take()
        try:
            # A grant that is told again keeps nobody from the generation behind it.
            with gateway.lanes.after(self._digest, row) if generation > row.generation else nullcontext():
                return claimed(await _sent(gateway, self.call, row.session_id, event, body.lease_ms, Kind.CLAIM, of_run))
        except NotFound:
            return None
        except OutcomeUnknown:
            raise
        except Refused as refused:
            code = refused.outcome.code
            if code not in _TAKEN or code in _ONE_CLAIMS:
                gateway.lanes.free(row)
            if code == refusals.HISTORY_UNAVAILABLE:
                self.unreadable = self.unreadable or refused.outcome
                gateway.lanes.is_unreadable(row, self._copes_with, refused.outcome)
            elif code not in _TAKEN:
                raise
            return None
        except StreamsError:
            # Nothing was sent.
            gateway.lanes.free(row)
            raise
        finally:
            gateway.changes.give_back()


async def _sent(
    gateway: Gateway, call: Call, session_id: str, event: Callable[[Naming], NewEvent], lease_ms: int, kind: Kind,
    incoming: Incoming | None = None,
) -> Done:  # fmt: skip
    facts = await gateway.facts_of(call, session_id)
    outcome, naming, _ = await gateway.carry_out(
        call, facts, lambda naming: [event(naming)], kind=kind, lease_ms=lease_ms, incoming=incoming
    )
    return Done(facts, outcome, naming, gateway.position_text(session_id, outcome.position_offset))


def _started(run_id: str, body: bodies.ClaimRun, digest: str) -> NewEvent:
    attributes = AttemptAttributes(
        claim_digest=digest,
        incomplete_ok=body.incomplete_ok or None,
        harness_revision=body.harness_revision,
        environment_revision=body.environment_revision,
    )
    return NewEvent(type="attempt.started", run_id=run_id, attributes=attributes)


_REFUSALS: Final = (
    "runtime.already_settled", "runtime.run_unavailable", "runtime.attempt_not_claimable", "runtime.attempt_fenced",
    "runtime.replacement_unavailable", "runtime.session_history_unavailable",
)  # fmt: skip
ROUTES = (
    Route(
        method="POST", path="/v1/runs/claim", name="claim_next_run", summary="Take any Run of some lanes, waiting for one",
        handler=claim_next, scope="runs:claim", body=bodies.ClaimNext, answer=Claimed, nothing="No Run came within wait_ms.",
        change=True, budget="claims", position=False, refusals=_REFUSALS,
    ),
    Route(
        method="POST", path=_RUN + "/claim", name="claim_run", summary="Take a Run: a lease, a new generation, and from what to go on",
        handler=claim, scope="runs:claim", body=bodies.ClaimRun, answer=Claimed, change=True, refusals=_REFUSALS,
    ),
    Route(
        method="POST", path=_RUN + "/replace", name="replace_attempt", summary="Take a Run whose attempt was ready, on evidence",
        handler=replace, scope="runs:claim", body=bodies.ReplaceAttempt, answer=Claimed, change=True, refusals=_REFUSALS,
    ),
)  # fmt: skip
