"""The service as a worker meets it: HTTP through the client, and nothing of the service's own code.

A worker proves itself with each report. What it has seen of its Run is `Held.run_sequence`; where the Run has moved further (a wait
was answered, an approval decided), it reads that first, and reports then. An Idempotency-Key names Run, attempt, step and phase: a
report that is sent again is answered as recorded, and no other attempt is ever answered with it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import Struct

from session_streams import Client, Conflict, Event, Report

FENCED: Final = frozenset({"runtime.attempt_fenced", "runtime.already_settled"})
POSITION: Final = "runtime.position_conflict"
_TRIES: Final = 20
_OCTETS: Final = {"content-type": "application/octet-stream"}


class Fenced(Exception):
    """Another attempt has the Run, or it is over: this worker touches nothing any more."""


class Restores(Struct, frozen=True):
    history: bool
    files: bool
    native_continuation: bool


class Recovery(Struct, frozen=True, kw_only=True):
    mode: str
    reason: str | None = None
    checkpoint_id: str | None = None
    through_sequence: int = 0
    complete: bool
    restores: Restores


class RunTold(Struct, frozen=True):
    accepted_sequence: int = 0


class Pin(Struct, frozen=True):
    pin_kind: str
    revision: str | None = None
    digest: str | None = None


class Claimed(Struct, frozen=True, kw_only=True):
    """What a worker goes on from; what else the answer tells is not needed here."""

    session_id: str
    sequence: int
    run_id: str
    generation: int
    native_task_id: str
    run_sequence: int
    run: RunTold
    pinned_context: list[Pin]
    recovery: Recovery


class Coordinates(Struct, frozen=True, kw_only=True):
    """The exact tuple that this worker runs on, as the support catalogue has it."""

    harness_revision: str
    environment_revision: str
    driver: str
    sandbox_provider_revision: str
    policy: str
    execution_target: str


class Standing(Struct, frozen=True):
    """A Run's last attempt, and the position of its last event."""

    generation: int
    run_sequence: int


class Held:
    """An attempt at a Run: what its reports name. `sequence` is the session's after the last of them."""

    def __init__(self, client: Client, claimed: Claimed, caught_up: Callable[[Event], None]) -> None:
        """`caught_up` is called with each event that is read, in order."""
        self.client = client
        self.session_id, self.run_id = claimed.session_id, claimed.run_id
        self.generation, self.native_task_id = claimed.generation, claimed.native_task_id
        self.run_sequence, self.sequence = claimed.run_sequence, claimed.sequence
        self.seen = 0
        self._caught_up = caught_up

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.session_id}"

    @property
    def attempt_path(self) -> str:
        return f"{self.path}/runs/{self.run_id}/attempts/{self.generation}"

    def key(self, name: str) -> str:
        return f"{self.run_id}/{self.generation}/{name}"

    def tell(self, path: str, body: Mapping[str, Any] | bytes, name: str, content_type: str | None = None) -> dict[str, Any]:
        """A report, under the key that `name` gives. Raises `Fenced`, and what the client raises."""
        headers = {} if content_type is None else {"content-type": content_type}
        for again in range(_TRIES):
            key = self.key(f"{name}/{again}" if again else name)
            try:
                answer = self.client.request("POST", path, body, key=key, headers={**headers, **self._report()}).json()
            except Conflict as refused:
                if refused.code in FENCED:
                    raise Fenced(str(refused)) from refused
                if refused.code != POSITION or again == _TRIES - 1:
                    raise
                self.catch_up()
            else:
                self.run_sequence, self.sequence = answer.get("run_sequence") or self.run_sequence, answer["sequence"]
                found: dict[str, Any] = answer
                return found
        raise AssertionError("unreachable")

    def append(self, lines: tuple[bytes, ...], name: str) -> None:
        self.tell(f"{self.path}/events", b"".join(line + b"\n" for line in lines), name, "application/x-ndjson")

    def renew(self, lease_ms: int, key: str) -> None:
        """Raises `Fenced`, and what the client raises."""
        report = Report(self.run_id, self.generation, self.native_task_id).header()
        try:
            self.client.request(
                "POST", f"{self.attempt_path}/renew", {"lease_ms": lease_ms}, key=key, headers={"session-streams-report": report}
            )
        except Conflict as refused:
            raise Fenced(str(refused)) from refused

    def catch_up(self) -> None:
        """Reads what the session has beyond what was seen."""
        for event in self.client.events(self.session_id, after_sequence=self.seen):
            self.seen = event.sequence
            self.sequence = max(self.sequence, event.sequence)
            if event.raw.get("run_id") == self.run_id:
                self.run_sequence = max(self.run_sequence, event.sequence)
            self._caught_up(event)

    def event_id(self, sequence: int) -> str:
        page = self.client.request("GET", f"{self.path}/events?after_sequence={sequence - 1}&limit=1").json()
        found: str = page["events"][0]["event_id"]
        return found

    def upload(self, file: BinaryIO, name: str) -> str:
        """The id of the uploaded bytes."""
        headers = {**_OCTETS, **self._report()}
        try:
            answer = self.client.request("POST", f"{self.path}/snapshots", file.read(), key=self.key(name), headers=headers)
        except Conflict as refused:
            raise (Fenced(str(refused)) if refused.code in FENCED else refused) from refused
        found: str = answer.json()["upload_id"]
        return found

    def content(self, checkpoint_id: str, part: str) -> bytes:
        return self.client.request("GET", f"{self.path}/checkpoints/{checkpoint_id}/content?part={part}").body

    def conversation(self, after_sequence: int) -> Iterator[dict[str, Any]]:
        """Its lines: events with content, gaps, and the end."""
        path = f"{self.attempt_path}/conversation?after_sequence={after_sequence}"
        for line in self.client.request("GET", path, headers=self._report()).body.splitlines():
            yield msgspec.json.decode(line)

    def _report(self) -> dict[str, str]:
        return {"session-streams-report": Report(self.run_id, self.generation, self.native_task_id, self.run_sequence).header()}


def claim_lane(client: Client, lanes: list[str], body: Mapping[str, Any], *, wait_ms: int, key: str) -> Claimed | None:
    """None where nothing could be had within `wait_ms`."""
    answer = client.request("POST", "/v1/runs/claim", {"lanes": lanes, "wait_ms": wait_ms, **body}, key=key)
    return None if answer.status == 204 else _claimed(answer.body)


def claim_run(client: Client, session_id: str, run_id: str, body: Mapping[str, Any], *, key: str) -> Claimed:
    return _claimed(client.request("POST", f"/v1/sessions/{session_id}/runs/{run_id}/claim", body, key=key).body)


def replace_run(
    client: Client, session_id: str, run_id: str, standing: Standing, exact: Coordinates, body: Mapping[str, Any], *, key: str
) -> Claimed:
    """Takes the place of an attempt that was ready, with everything that the evidence needs from a worker."""
    evidence = {"replaces": standing.generation, "frontier_sequence": standing.run_sequence, **msgspec.to_builtins(exact)}
    return _claimed(client.request("POST", f"/v1/sessions/{session_id}/runs/{run_id}/replace", {**body, **evidence}, key=key).body)


def standing_of(client: Client, session_id: str, run_id: str) -> Standing:
    """Read from the session's events: which attempt a replacement replaces, and at which position of the Run."""
    generation = run_sequence = 0
    for event in client.events(session_id):
        if event.raw.get("run_id") == run_id:
            run_sequence = event.sequence
            if event.type == "attempt.started":
                generation = event.raw["attempt_generation"]
    return Standing(generation, run_sequence)


def _claimed(body: bytes) -> Claimed:
    return msgspec.json.decode(body, type=Claimed)
