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
    """Knows its Run by the plan. `over_at` is the position at which the last step was over: whatever the next one has begun is told
    behind it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._done = self.over_at = 0
        self._said = {step.record: step.index for step in plan.steps if isinstance(step, Say)}
        self._acts = {step.digest: step.index for step in plan.steps if isinstance(step, Act)}
        self._pauses = {step.mark: step.index for step in plan.steps if isinstance(step, Pause)}
        self._step_of: dict[str, int] = {}
        self.waits: dict[int, str] = {}
        """Step -> its wait."""
        self.approvals: dict[int, tuple[str, str]] = {}
        """Step -> its approval, and what was decided: open, granted or denied."""
        self.effects: dict[int, Effect] = {}
        """Step -> the effect that was last dispatched for it."""

    @property
    def next(self) -> int:
        """The first step that the log does not tell to be over."""
        return self._done

    def over(self, step: int, sequence: int) -> None:
        """The step is over since this position of the session, at the latest."""
        if step >= self._done:
            self._done, self.over_at = step + 1, sequence

    def take(self, event: Mapping[str, Any]) -> None:
        if event.get("run_id") != self._plan.run_id:
            return
        attributes, over = event.get("attributes") or {}, None
        match event["type"].split("."):
            case "message", _:
                over = self._said.get(attributes.get("source_index", -1))
            case "wait", participle:
                over = self._wait(participle, attributes)
            case "approval", participle:
                over = self._approval(participle, attributes)
            case "effect", participle:
                over = self._effect(participle, attributes)
        if over is not None:
            self.over(over, event["sequence"])

    # Each returns the step that is over with this, if one is.

    def _wait(self, participle: str, attributes: Mapping[str, Any]) -> int | None:
        wait_id = attributes["wait_id"]
        if participle == "opened":
            step = self._pauses.get(attributes.get("reason", ""))
            if step is not None:
                self._step_of[wait_id], self.waits[step] = step, wait_id
            return None
        return self._step_of.get(wait_id)

    def _approval(self, participle: str, attributes: Mapping[str, Any]) -> int | None:
        approval_id = attributes["approval_id"]
        if participle == "requested":
            step = self._acts.get(attributes["action_digest"])
            if step is not None:
                self._step_of[approval_id], self.approvals[step] = step, (approval_id, OPEN)
            return None
        step = self._step_of.get(approval_id)
        if step is not None:
            self.approvals[step] = (approval_id, participle)
        return step if participle == "denied" else None

    def _effect(self, participle: str, attributes: Mapping[str, Any]) -> int | None:
        effect_id = attributes["effect_id"]
        if participle == "dispatched":
            step = self._acts.get(attributes.get("action_digest", ""))
            if step is not None:
                self._step_of[effect_id], self.effects[step] = step, Effect(effect_id)
            return None
        step = self._step_of.get(effect_id)
        if step is None or participle == "indeterminate":
            return None
        self.effects[step].outcome = outcome = attributes.get("outcome") or "succeeded"
        # What is known not to have been done is done anew, under an identity of its own.
        return None if outcome == NOT_PERFORMED else step
