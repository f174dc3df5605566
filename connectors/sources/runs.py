"""Imported threads, Turns and Runs: what opens one and what settles it.

Every session has a main thread, and threads of its agents below it. An imported Run has one attempt, of generation 1,
no lease, and nobody may claim it. The authority itself adds `run.started` when the attempt starts, so it is never sent.
"""

from msgspec import Struct, structs

from connectors.sources.bodies import EventBody, Place, Scalar, outside_id

GENERATION = 1


def main_thread(session_id: str) -> str:
    return outside_id("sthr", session_id, "main")


def agent_thread(session_id: str, agent_id: str) -> str:
    return outside_id("sthr", session_id, "agent", agent_id)


def thread_opened(thread_id: str, parent_id: str | None, occurred_at: str | None, child_id: str | None = None) -> EventBody:
    """A main thread where `parent_id` is None; `child_id` names the child work that a child thread tells of."""
    place = Place(thread_id=thread_id, occurred_at=occurred_at)
    attributes = {"kind": "main" if parent_id is None else "child", "parent_thread_id": parent_id}
    return place.event("thread.opened", attributes, links=[] if child_id is None else [("child", child_id)])


class ImportedRun(Struct, frozen=True):
    """A Turn of the main thread with its one Run."""

    thread_id: str
    turn_id: str
    run_id: str

    @classmethod
    def named(cls, session_id: str, *key: str) -> "ImportedRun":
        """Ids from what the source calls the record that opens the Run."""
        return cls(main_thread(session_id), outside_id("turn", session_id, *key), outside_id("run", session_id, *key))

    def place(self, occurred_at: str | None) -> Place:
        """Where the Run's own events stand."""
        return Place(
            thread_id=self.thread_id,
            turn_id=self.turn_id,
            run_id=self.run_id,
            attempt_generation=GENERATION,
            occurred_at=occurred_at,
        )

    def opening(self, occurred_at: str | None, harness: str, harness_revision: str | None = None) -> list[EventBody]:
        turn, run = self._turn(occurred_at), self.place(occurred_at)
        accepted: dict[str, Scalar | None] = {
            "origin": "imported",
            "claimable": False,
            "harness": harness,
            "harness_revision": harness_revision,
        }
        return [
            turn.event("turn.started"),
            # A Run is accepted before it has an attempt.
            structs.replace(run, attempt_generation=None).event("run.accepted", accepted),
            run.event("attempt.started"),
        ]

    def settling(
        self, occurred_at: str | None, *, interrupted: bool = False, reward: float | None = None, content: bytes | None = None
    ) -> list[EventBody]:
        """The Run's end, then the Turn's. A Run that the person interrupted was cancelled, not completed."""
        turn, run = self._turn(occurred_at), self.place(occurred_at)
        if interrupted:
            end = run.event("run.cancelled", {"reason": "interrupted"}, content=content)
        else:
            end = run.event("run.completed", {"reward": reward}, content=content)
        return [end, turn.event("turn.completed", {"outcome": "interrupted" if interrupted else "completed"})]

    def _turn(self, occurred_at: str | None) -> Place:
        return Place(thread_id=self.thread_id, turn_id=self.turn_id, occurred_at=occurred_at)
