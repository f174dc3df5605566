"""What holds at every moment of sessions that are forked, claimed and recovered, judged beside the core: see `tests/properties`.

A state machine over sessions derives from `WhatHolds` and keeps in `sessions` what it has told of each.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis.stateful import RuleBasedStateMachine, invariant

from streams.session import lifecycles
from streams.session.commands import Report
from streams.session.decide import Decision
from streams.session.items import AttemptState, CheckpointState, DictItems, EffectState
from streams.session.outcomes import Grant
from streams.session.state import evolve
from tests.support.recovering import Generations
from tests.support.story import SECOND, Story, as_logged


@dataclass
class Told:
    """Of one session, beside the core: what was granted, and what must not change any more."""

    story: Story
    source: "Told | None" = None
    holders: dict[str, tuple[str, Grant, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Checkpoint id -> its `expires_at`, as first told."""
    settled: dict[tuple[str, str], str] = field(default_factory=dict)
    pinned: tuple[object, ...] = ()
    checked: int = 0
    """Events that the invariants over the log have seen."""
    generations: Generations = field(default_factory=Generations)


class WhatHolds(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[Told] = []
        self.took_over_at = 0
        """Microseconds since the epoch."""

    # -- of each report and grant

    def may_report(self, told: Told, by: str, report: Report, decision: Decision) -> None:
        holder, grant, _ = told.holders[report.run_id]
        assert (by, report.generation, report.native_task_id) == (holder, grant.generation, grant.native_task_id), "a stale worker got in"
        assert decision.accepted_at <= self.deadline(told, report.run_id), "after its lease"

    def deadline(self, told: Told, run_id: str) -> int:
        """As the grants have it: the lease, and its length once more after a takeover."""
        _, grant, lease_s = told.holders[run_id]
        return max(grant.lease_expires_at, self.took_over_at + lease_s * SECOND)

    def granted(self, told: Told, by: str, grant: Grant, lease_s: int | None) -> None:
        before = told.holders.get(grant.run_id)
        same = before is not None and before[1].generation == grant.generation
        if before is not None and same:
            assert before[0] == by, "one generation, two holders"
            renewed = grant.lease_expires_at != before[1].lease_expires_at
            told.holders[grant.run_id] = (by, grant, (lease_s or before[2]) if renewed else before[2])
        else:
            told.holders[grant.run_id] = (by, grant, lease_s or 30)

    # -- always

    @invariant()
    def sequences_have_no_gap_and_times_do_not_decrease(self) -> None:
        for told in self.sessions:
            events = told.story.events
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert all(one.accepted_at <= two.accepted_at and one.hash == two.previous_hash for one, two in pairwise(events[-8:]))
            assert (told.story.header.sequence, told.story.header.last_hash) == (len(events), events[-1].hash)

    @invariant()
    def no_run_has_two_live_generations_and_none_that_was_ready_is_replaced_in_silence(self) -> None:
        for told in self.sessions:
            for event in told.story.events[told.checked :]:
                told.generations.follow(event)
            told.checked = len(told.story.events)
            attempts = [item for item in told.story.items.items.values() if isinstance(item, AttemptState)]
            for attempt in attempts:
                assert (attempt.status in lifecycles.LIVE_ATTEMPT) == (told.generations.live.get(attempt.run_id) == attempt.generation)
                assert attempt.generation == told.generations.reached[attempt.run_id] == told.story.run(attempt.run_id).generation

    @invariant()
    def nothing_settled_is_reopened(self) -> None:
        for told in self.sessions:
            for key, item in told.story.items.items.items():
                status = getattr(item, "status", None)
                if key in told.settled:
                    assert status == told.settled[key]
                elif status is not None and key[0] != "attempt" and status in lifecycles.FINAL[key[0]]:
                    told.settled[key] = status

    @invariant()
    def no_expires_at_moves_and_a_childs_is_its_sources(self) -> None:
        for told in self.sessions:
            for item in told.story.items.items.values():
                if isinstance(item, CheckpointState):
                    assert told.ends.setdefault(item.checkpoint_id, item.expires_at) == item.expires_at
                    if item.origin_session_id != told.story.session_id:
                        assert told.source is not None
                        assert told.source.ends[item.checkpoint_id] == item.expires_at

    @invariant()
    def a_policy_change_touches_no_session_that_is_there(self) -> None:
        for told in self.sessions:
            header = told.story.header
            pinned = (header.policy_mode, header.content_window_days, header.checkpoint_window_s)
            told.pinned = told.pinned or pinned
            assert told.pinned == pinned

    @invariant()
    def an_effect_is_in_flight_only_while_its_attempt_may_report(self) -> None:
        for told in self.sessions:
            for item in told.story.items.items.values():
                if isinstance(item, EffectState) and item.status == lifecycles.DISPATCHED:
                    assert told.generations.live.get(item.run_id or "") == item.attempt_generation

    def teardown(self) -> None:
        """The events of each session fold to what its authority holds."""
        for told in self.sessions:
            folded = DictItems()
            for event in told.story.events:
                folded.put(evolve(folded, event))
            assert as_logged(folded) == as_logged(told.story.items)
