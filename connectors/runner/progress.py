"""How far a Run is, read from its events alone: each worker comes to the same answer, whoever did the steps.

A step that the log tells of is over for good. What stands behind the last one may have begun: a wait opened, an approval asked, an
effect dispatched. Events come as the interface shows them (JSON objects), in order; those of other Runs change nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

from connectors.runner.plan import Act, Pause, Plan, Say

OPEN: Final = "open"
NOT_PERFORMED: Final = "not_performed"


class Effect:
    """`outcome` is None until it is settled: succeeded, failed, not_performed or abandoned."""

    def __init__(self, effect_id: str) -> None:
        self.effect_id = effect_id
        self.outcome: str | None = None


class Progress:
    """`sequence` is the session's position up to which it has been read."""

    def __init__(self, plan: Plan, *, done: int = 0, sequence: int = 0) -> None:
        """`done`: how many steps are over by what a checkpoint kept."""
        self._plan = plan
        self._done = done
        self.sequence = sequence
        self._said = {step.record: step.index for step in plan.steps if isinstance(step, Say)}
        self._acts = {step.digest: step.index for step in plan.steps if isinstance(step, Act)}
        self._pauses = {step.mark: step.index for step in plan.steps if isinstance(step, Pause)}
        self._step_of: dict[str, int] = {}
        self.waits: dict[int, str] = {}
        """Step -> its wait, while that is open."""
        self.approvals: dict[int, tuple[str, str]] = {}
        """Step -> its approval, and what was decided: open, granted or denied."""
        self.effects: dict[int, Effect] = {}
        """Step -> the effect that was last dispatched for it."""

    @property
    def next(self) -> int:
        """The first step that the log does not tell to be over."""
        return self._done

    def over(self, step: int) -> None:
        self._done = max(self._done, step + 1)

    def take(self, event: Mapping[str, Any]) -> None:
        self.sequence = max(self.sequence, event["sequence"])
        if event.get("run_id") == self._plan.run_id:
            family, _, participle = event["type"].partition(".")
            take = getattr(self, f"_{family}", None)
            if take is not None:
                take(participle, event.get("attributes") or {})

    def _message(self, _: str, attributes: Mapping[str, Any]) -> None:
        step = self._said.get(attributes.get("source_index", -1))
        if step is not None:
            self.over(step)

    def _wait(self, participle: str, attributes: Mapping[str, Any]) -> None:
        wait_id = attributes["wait_id"]
        if participle == "opened":
            step = self._pauses.get(attributes.get("reason", ""))
            if step is not None:
                self._step_of[wait_id], self.waits[step] = step, wait_id
        elif wait_id in self._step_of:
            self.over(self._step_of[wait_id])
            self.waits.pop(self._step_of[wait_id], None)

    def _approval(self, participle: str, attributes: Mapping[str, Any]) -> None:
        approval_id = attributes["approval_id"]
        if participle == "requested":
            step = self._acts.get(attributes["action_digest"])
            if step is not None:
                self._step_of[approval_id], self.approvals[step] = step, (approval_id, OPEN)
        elif approval_id in self._step_of:
            step = self._step_of[approval_id]
            self.approvals[step] = (approval_id, participle)
            if participle == "denied":
                self.over(step)

    def _effect(self, participle: str, attributes: Mapping[str, Any]) -> None:
        effect_id = attributes["effect_id"]
        if participle == "dispatched":
            step = self._acts.get(attributes.get("action_digest", ""))
            if step is not None:
                self._step_of[effect_id], self.effects[step] = step, Effect(effect_id)
        elif participle != "indeterminate" and effect_id in self._step_of:
            step = self._step_of[effect_id]
            outcome = attributes.get("outcome") or "succeeded"
            self.effects[step].outcome = outcome
            # What is known not to have been done is done anew, under an identity of its own.
            if outcome != NOT_PERFORMED:
                self.over(step)
