"""Commands: requests to one session.

A command is a list of drafts of events; its kind says who fills in what only the authority knows. A new kind finds its
place in `Kind`, in the table of `decide.py`, and nowhere else.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from streams.session.events import Draft


class Kind(StrEnum):
    """What a command asks for.

    - append: accept the drafts.
    - claim: grant a Run to the principal (one draft, `attempt.started`, with run_id and attributes.claim_digest; no report).
    - replace: as claim, of a Run whose attempt was ready, with the evidence in the draft's attributes.
    - renew: extend the lease of the report's attempt (no drafts), append nothing.
    - lapse: fail the attempt that the report names if its lease is over (no drafts); sent by the custodian.
    - fork: make a session of a prefix of this one (one draft, `session.forked`).
    - child: begin the session that a fork makes; sent by the authority alone.
    - erase: the content and the checkpoints so far are erased (no drafts), append nothing; sent by the custodian.
    - disinherit: what a fork has of its ancestors, and its checkpoints so far, are erased (no drafts), append nothing; sent by the
      custodian.
    """

    APPEND = "append"
    CLAIM = "claim"
    REPLACE = "replace"
    RENEW = "renew"
    LAPSE = "lapse"
    FORK = "fork"
    CHILD = "child"
    ERASE = "erase"
    DISINHERIT = "disinherit"


DRAFTLESS: Final = frozenset({Kind.RENEW, Kind.LAPSE, Kind.ERASE, Kind.DISINHERIT})


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
