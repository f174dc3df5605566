"""Promise 4 of the log on a real broker: only the current generation of a RunAttempt may report into its Run.

Every refusal is asked for, told with its code, and leaves the session's part of the log as it was, byte for byte.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streams.session.commands import Command, Kind, Report
from streams.session.events import (
    AttemptAttributes,
    Attributes,
    EffectAttributes,
    MessageAttributes,
    RunAttributes,
    TurnAttributes,
    WaitAttributes,
)
from streams.session.ids import derive_from_command
from streams.session.outcomes import ACCEPTED, REJECTED, Grant, Outcome
from streams.settings import Settings
from tests.support.asker import Asker
from tests.support.commands import command, create_session, draft, new_id, new_marker, sealed
from tests.support.load import read_events
from tests.support.processes import Fleet

FAST = {"member_session_timeout_s": 6.0, "transaction_timeout_s": 4.0, "partitions": 4}
SHORT_LEASE_MS, LONG_LEASE_MS = 1000, 600_000
MESSAGE = MessageAttributes(role="assistant")
DIGEST = "sha256:" + "7" * 64
FENCED, POSITION, SETTLED = "runtime.attempt_fenced", "runtime.position_conflict", "runtime.already_settled"


@pytest.fixture
def fast(settings: Settings) -> Settings:
    return replace(settings, **FAST)  # type: ignore[arg-type]


@pytest.fixture
def asker(fast: Settings) -> Iterator[Asker]:
    asker = Asker(fast)
    yield asker
    asker.close()


class Worker:
    """One principal at one session: what it asks goes straight to the command topic, and its grant is kept as it was told."""

    def __init__(self, asker: Asker, session_id: str) -> None:
        self.principal_id = new_id("key")
        self._asker, self._session_id = asker, session_id
        self.grant: Grant | None = None
        self.seen = 0

    def tell(self, event_type: str, attributes: Attributes | None, *, report: Report | None = None, **where: object) -> Outcome:
        """One event in one command; a message brings content along."""
        command_id = new_id("cmd")
        content = sealed(self._session_id, new_marker()) if event_type == "message.appended" else None
        told = draft(self._session_id, command_id, 0, event_type, attributes, content, **where)
        outcome = self._ask(command(self._session_id, (told,), command_id=command_id, principal_id=self.principal_id, report=report))
        if outcome.status == ACCEPTED and report is not None:
            assert outcome.actual_run_sequence is not None
            self.seen = outcome.actual_run_sequence
        return outcome

    def report_in(self, event_type: str, attributes: Attributes | None, **changes: object) -> Outcome:
        """With the report that its grant allows, or with `changes` to it."""
        assert self.grant is not None
        report = self.report(**changes)
        return self.tell(event_type, attributes, report=report, run_id=report.run_id)

    def report(self, **changes: object) -> Report:
        assert self.grant is not None
        fields = {
            "run_id": self.grant.run_id, "generation": self.grant.generation, "native_task_id": self.grant.native_task_id,
            "expected_run_sequence": self.seen, **changes,
        }  # fmt: skip
        return Report(**fields)  # type: ignore[arg-type]

    def claim(self, run_id: str, lease_ms: int) -> Outcome:
        command_id = new_id("cmd")
        claim_digest = command_id.removeprefix("cmd_")
        started = draft(self._session_id, command_id, 0, "attempt.started", AttemptAttributes(claim_digest=claim_digest), run_id=run_id)
        outcome = self._ask(
            command(self._session_id, (started,), command_id=command_id, kind=Kind.CLAIM, principal_id=self.principal_id, lease_ms=lease_ms)
        )
        if outcome.grant is not None:
            assert outcome.grant.native_task_id == derive_from_command("task", command_id, 0)
            self.grant, self.seen = outcome.grant, outcome.grant.run_sequence
        return outcome

    def _ask(self, asked: Command) -> Outcome:
        outcome = self._asker.ask(asked)
        assert outcome is not None, "nobody answered"
        return outcome


class Ledger:
    """The session's part of the log, as it stands."""

    def __init__(self, settings: Settings, session_id: str) -> None:
        self._settings, self._session_id = settings, session_id

    def events(self) -> list[tuple[int, bytes]]:
        mine = [entry.event for entry in read_events(self._settings) if entry.event.session_id == self._session_id]
        assert [event.sequence for event in mine] == list(range(1, len(mine) + 1))
        return [(event.sequence, event.hash) for event in mine]

    def refused(self, outcome: Outcome, code: str, before: list[tuple[int, bytes]]) -> None:
        assert (outcome.status, outcome.code) == (REJECTED, code)
        assert outcome.last_sequence == len(before)
        assert self.events() == before


def accepted(outcome: Outcome) -> Outcome:
    assert outcome.status == ACCEPTED, outcome
    return outcome


def test_promise_4_a_delayed_or_replaced_worker_may_not_report_and_leaves_no_trace(fast: Settings, asker: Asker) -> None:
    """One worker stops renewing and another claims its Run; the first comes late, under every name that it could try."""
    session_id, run_id = new_id("sess"), new_id("run")
    person, first, second = (Worker(asker, session_id) for _ in range(3))
    ledger = Ledger(fast, session_id)
    with Fleet(fast) as fleet:
        authority = fleet.start("authority")
        assert asker.ask(create_session(session_id)) is not None
        accepted(person.tell("run.accepted", RunAttributes(origin="live", claimable=True), run_id=run_id))

        accepted(first.claim(run_id, SHORT_LEASE_MS))
        assert first.grant is not None
        assert first.grant.generation == 1
        time.sleep(SHORT_LEASE_MS / 1000 + 0.2)
        before = ledger.events()
        ledger.refused(first.report_in("message.appended", MESSAGE), FENCED, before)

        accepted(second.claim(run_id, LONG_LEASE_MS))
        assert second.grant is not None
        assert second.grant.generation == 2
        accepted(second.report_in("message.appended", MESSAGE))

        def turned_away() -> None:
            before = ledger.events()
            stolen = {"generation": 2, "native_task_id": second.grant.native_task_id, "expected_run_sequence": second.seen}
            late: list[dict[str, object]] = [{}, {"generation": 2}, stolen]
            for changes in late:
                ledger.refused(first.report_in("message.appended", MESSAGE, **changes), FENCED, before)
            ledger.refused(second.report_in("message.appended", MESSAGE, native_task_id=new_id("task")), FENCED, before)
            behind = second.report_in("message.appended", MESSAGE, expected_run_sequence=second.seen - 1)
            ledger.refused(behind, POSITION, before)
            assert behind.actual_run_sequence == second.seen

        turned_away()
        # Who holds the Run is state: it must be the same after a restore from nothing.
        authority.kill()
        os.rename(fast.data_dir / "stores", fast.data_dir / "lost")
        authority.restart()
        turned_away()
        accepted(second.report_in("message.appended", MESSAGE, expected_run_sequence=second.seen))


def test_promise_4_what_is_settled_is_never_reopened(fast: Settings, asker: Asker) -> None:
    """A Run, a Turn, a wait and an effect, each settled and then asked for once more, also after a restart."""
    session_id, run_id, turn_id = new_id("sess"), new_id("run"), new_id("turn")
    wait_id, effect_id = new_id("wait"), new_id("eff")
    person, worker = Worker(asker, session_id), Worker(asker, session_id)
    ledger = Ledger(fast, session_id)
    answered, receipt = WaitAttributes(wait_id=wait_id), EffectAttributes(effect_id=effect_id, receipt_digest=DIGEST, outcome="succeeded")
    with Fleet(fast) as fleet:
        authority = fleet.start("authority")
        assert asker.ask(create_session(session_id)) is not None
        accepted(person.tell("turn.started", None, turn_id=turn_id))
        accepted(person.tell("run.accepted", RunAttributes(origin="live", claimable=True), run_id=run_id, turn_id=turn_id))
        accepted(worker.claim(run_id, LONG_LEASE_MS))
        accepted(worker.report_in("wait.opened", WaitAttributes(wait_id=wait_id, kind="human")))
        resumed = accepted(person.tell("wait.answered", answered))
        worker.seen = resumed.last_sequence
        dispatch = EffectAttributes(effect_id=effect_id, provider="a-provider", request_digest=DIGEST, action_digest=DIGEST)
        accepted(worker.report_in("effect.dispatched", dispatch))
        accepted(worker.report_in("effect.receipt_accepted", receipt))

        before = ledger.events()
        ledger.refused(person.tell("wait.answered", answered), SETTLED, before)
        ledger.refused(worker.report_in("effect.receipt_accepted", receipt), SETTLED, before)
        ledger.refused(worker.report_in("effect.dispatched", dispatch), SETTLED, before)

        accepted(worker.report_in("run.completed", RunAttributes(outcome="done")))
        accepted(person.tell("turn.completed", TurnAttributes(), turn_id=turn_id))

        def stays_settled() -> None:
            before = ledger.events()
            for event_type in ("message.appended", "run.completed", "run.failed"):
                attributes = MESSAGE if event_type == "message.appended" else RunAttributes()
                ledger.refused(worker.report_in(event_type, attributes), SETTLED, before)
            ledger.refused(person.tell("run.cancelled", RunAttributes(), run_id=run_id), SETTLED, before)
            ledger.refused(person.tell("run.accepted", RunAttributes(origin="live"), run_id=run_id), SETTLED, before)
            ledger.refused(person.claim(run_id, LONG_LEASE_MS), SETTLED, before)
            ledger.refused(person.tell("turn.completed", TurnAttributes(), turn_id=turn_id), SETTLED, before)
            ledger.refused(person.tell("wait.answered", answered), SETTLED, before)
            reconciled = EffectAttributes(effect_id=effect_id, evidence_kind="provider_lookup", outcome="failed")
            ledger.refused(person.tell("effect.reconciled", reconciled), SETTLED, before)

        stays_settled()
        authority.kill()
        authority.restart()
        stays_settled()
