"""Runs for workers to claim, and what their claims are answered: what the lines of recovery share."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.httpload import Ask
from benchmarks.serving import Installation

LEASE_MS: Final = 3_600_000
"""Nothing lapses while it is measured."""
_OPENING: Final = 64


class Held(NamedTuple):
    """An attempt that was granted."""

    session_id: str
    run_id: str
    generation: int
    native_task_id: str
    run_sequence: int

    @property
    def report(self) -> str:
        """As the header tells it."""
        return f"{self.run_id};{self.generation};{self.native_task_id};{self.run_sequence}"


def open_runs(installation: Installation, sessions: Sequence[str], lane: str, count: int) -> list[tuple[str, str]]:
    """Session and id of `count` Runs that may be claimed, in the sessions by turns."""
    body = msgspec.json.encode({"lane": lane, "harness_revision": "harness@1", "environment_revision": "image@1"}).decode()
    asks = [Ask(path=f"/v1/sessions/{sessions[index % len(sessions)]}/runs", body=body) for index in range(count)]
    answers = decoded(installation.ask(asks, _OPENING).outcome.bodies)
    return [(answer["session_id"], answer["run_id"]) for answer in answers]


def claim_of(session_id: str, run_id: str) -> Ask:
    return Ask(path=f"/v1/sessions/{session_id}/runs/{run_id}/claim", body=f'{{"lease_ms":{LEASE_MS}}}')


def claim_next(lane: str, wait_ms: int) -> Ask:
    return Ask(path="/v1/runs/claim", body=f'{{"lanes":["{lane}"],"lease_ms":{LEASE_MS},"wait_ms":{wait_ms}}}')


def held(bodies: Sequence[str]) -> list[Held]:
    """What claims were granted. Raises AssertionError where a Run was granted twice."""
    grants = [
        Held(each["session_id"], each["run_id"], each["generation"], each["native_task_id"], each["run_sequence"])
        for each in decoded(bodies)
    ]
    if len({grant.run_id for grant in grants}) != len(grants) or any(grant.generation != 1 for grant in grants):
        raise AssertionError(f"a Run was granted more than once among {len(grants)} grants")
    return grants


def decoded(bodies: Sequence[str]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(body) for body in bodies]
