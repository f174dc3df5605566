"""The service as a worker meets it: HTTP through the client, and nothing of the service's own code.

A worker proves itself with each report. What it has seen of its Run is `Held.run_sequence`; where the Run has moved further (a wait
was answered, an approval decided), it reads that first, and reports then. An Idempotency-Key names Run, attempt, step and phase: a
report that is sent again is answered as recorded, and no other attempt is ever answered with it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from msgspec import Struct

from session_streams import Claim, Client, Conflict, Event, Report
from session_streams.recovery import HistoryLine

FENCED: Final = frozenset({"runtime.attempt_fenced", "runtime.already_settled"})
POSITION: Final = "runtime.position_conflict"
_TRIES: Final = 20


Notice = Callable[[str, dict[str, Any]], None]
"""Called with what happens, and with what there is to say of it: claimed, begun, checkpoint, acted; waits, asks (which somebody has
to answer, where `answer` says); refused, once for each kind of refusal."""


class Fenced(Exception):
    """Another attempt has the Run, or it is over: this worker touches nothing any more."""


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

    def __init__(self, client: Client, claim: Claim, caught_up: Callable[[Event], None]) -> None:
        """`caught_up` is called with each event that is read, in order."""
        self.client, self.claim = client, claim
        self.session_id, self.run_id, self.generation = claim.session_id, claim.run_id, claim.generation
        self.run_sequence, self.sequence = claim.run_sequence, claim.frontier_sequence
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
                answer = self.client.request(
                    "POST", path, body, key=key, headers={**headers, "session-streams-report": self.report.header()}
                ).json()
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
        report = Report(self.run_id, self.generation, self.claim.native_task_id).header()
        body, headers = {"lease_ms": lease_ms}, {"session-streams-report": report}
        try:
            self.client.request("POST", f"{self.attempt_path}/renew", body, key=key, headers=headers)
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
        """The id of the uploaded bytes. Raises `Fenced`, and what the client raises."""
        try:
            return self.client.upload_snapshot(self.session_id, file, report=self.report, key=self.key(name)).upload_id
        except Conflict as refused:
            raise (Fenced(str(refused)) if refused.code in FENCED else refused) from refused

    def download(self, checkpoint_id: str, part: str, file: BinaryIO) -> None:
        """What a checkpoint retains, into `file`, which is then at its beginning."""
        self.client.download(self.session_id, checkpoint_id, file, part=part)
        file.seek(0)

    def conversation(self, after_sequence: int) -> Iterator[HistoryLine]:
        return self.client.conversation(self.claim, after_sequence=after_sequence)

    @property
    def report(self) -> Report:
        return Report(self.run_id, self.generation, self.claim.native_task_id, self.run_sequence)


def standing_of(client: Client, session_id: str, run_id: str) -> Standing:
    """Read from the session's events: which attempt a replacement replaces, and at which position of the Run."""
    generation = run_sequence = 0
    for event in client.events(session_id):
        if event.raw.get("run_id") == run_id:
            run_sequence = event.sequence
            if event.type == "attempt.started":
                generation = event.raw["attempt_generation"]
    return Standing(generation, run_sequence)
