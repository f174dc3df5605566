"""Commands: requests to one session.

A command is a list of drafts of events; its kind says who fills in what only the authority knows. New kinds (fork,
checkpoint, lapse of a lease) find their place in `Kind`, in the table of `decide.py`, and nowhere else.
"""

from enum import StrEnum

from msgspec import Struct

from streams.session.events import Draft


class Kind(StrEnum):
    """append: accept the drafts. claim: grant a Run to the principal (one draft, `attempt.started`, with run_id and
    attributes.claim_digest; no report). renew: extend the lease of the report's attempt (no drafts), append nothing."""

    APPEND = "append"
    CLAIM = "claim"
    RENEW = "renew"


class Report(Struct, frozen=True, gc=False):
    """What a worker proves to report into its Run (promise 4 of the log)."""

    run_id: str
    generation: int
    native_task_id: str | None = None
    expected_run_sequence: int | None = None


class Command(Struct, frozen=True, gc=False, kw_only=True):
    """Times in microseconds since the epoch, UTC. `request_digest` is 32 bytes (ids.request_digest)."""

    command_id: str
    session_id: str
    workspace_id: str
    kind: Kind
    principal_id: str
    request_digest: bytes
    issued_at: int
    not_after: int
    expected_sequence: int | None = None
    report: Report | None = None
    lease_ms: int | None = None
    importing: bool = False
    reply_to: str = ""
    correlation: int = 0
    drafts: tuple[Draft, ...] = ()
