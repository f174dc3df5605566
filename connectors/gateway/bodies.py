"""Requests as JSON: one record a route, unknown fields refused. `content` is kept as the text that came.

The record of an event to append is `connectors.edge.events.EventBody`: events come in without a gateway too.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta

from connectors.edge import fields as f
from connectors.edge.fields import Body, Content
from streams.query.queries import LANES_MAX


class CreateSession(Body, frozen=True):
    """`subject` is the caller's own identifier of the person concerned; `metadata` is content. `origin: imported` needs
    the scope sessions:import."""

    subject: f.OutsideId | None = None
    metadata: Content = UNSET
    origin: f.Origin = "live"


class CloseSession(Body, frozen=True):
    reason: f.Code | None = None
    content: Content = UNSET


class EraseSubject(Body, frozen=True):
    """Nothing has to be said beside the path."""


class SetPolicy(Body, frozen=True):
    """The whole policy: what stood before is replaced by it."""

    mode: f.PolicyMode
    content_window_days: f.Days
    checkpoint_window_s: f.CheckpointWindow


class OpenThread(Body, frozen=True):
    kind: f.ThreadKind = "main"
    parent_thread_id: f.ThreadId | None = None
    content: Content = UNSET


class StartTurn(Body, frozen=True):
    thread_id: f.ThreadId | None = None
    actor: f.OutsideId | None = None
    content: Content = UNSET


class CompleteTurn(Body, frozen=True):
    outcome: f.Code | None = None
    content: Content = UNSET


class OpenRun(Body, frozen=True):
    """`claimable: false` reserves the Run for those who know its id."""

    thread_id: f.ThreadId | None = None
    turn_id: f.TurnId | None = None
    lane: f.Name | None = None
    claimable: bool = True
    harness: f.Name | None = None
    harness_revision: f.Name | None = None
    environment_revision: f.Name | None = None
    parent_run_id: f.RunId | None = None
    actor: f.OutsideId | None = None
    content: Content = UNSET


class ClaimRun(Body, frozen=True):
    """`incomplete_ok`: the worker copes with a history that cannot be read whole. The revisions are the worker's own; without
    them it stands for those that the Run names."""

    lease_ms: f.LeaseMs = 60_000
    incomplete_ok: bool = False
    harness_revision: f.Name | None = None
    environment_revision: f.Name | None = None


class ClaimNext(ClaimRun, frozen=True, kw_only=True):
    """Any Run of these lanes; `wait_ms`: how long to wait for one."""

    lanes: Annotated[tuple[f.Name, ...], Meta(min_length=1, max_length=LANES_MAX)]
    wait_ms: Annotated[int, Meta(ge=0, le=30_000, description="Milliseconds")] = 0


class ReplaceAttempt(Body, frozen=True):
    """The evidence for replacing an attempt that was ready: `replaces` is its generation, `frontier_sequence` the Run position that
    the worker has recovered to, and the rest the exact tuple that must be verified now (GET /v1/support/capabilities)."""

    replaces: f.Generation
    frontier_sequence: f.Count
    harness_revision: f.Name
    environment_revision: f.Name
    driver: f.Name
    sandbox_provider_revision: f.Name
    policy: f.Name
    execution_target: f.Name
    lease_ms: f.LeaseMs = 60_000
    incomplete_ok: bool = False


class Snapshot(Body, frozen=True):
    """Either `upload_id`, of bytes uploaded to this session, or what a provider keeps: `provider` and `reference`, which is content
    and sealed."""

    upload_id: f.UploadId | None = None
    provider: f.Name | None = None
    reference: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None


class NativeContinuation(Body, frozen=True, tag_field="kind", tag="native"):
    """Uploaded harness material, at most 16 MiB."""

    upload_id: f.UploadId


class RebuiltContinuation(Body, frozen=True, tag_field="kind", tag="event_log_rebuild"):
    """The harness is to be rebuilt from the event log."""


class CreateCheckpoint(Body, frozen=True):
    """Everything up to `through_sequence`, which is `through_event_id`, is in it. Revisions that are not given are those of the Run."""

    through_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)]
    through_event_id: f.EventId
    continuation: NativeContinuation | RebuiltContinuation
    snapshot: Snapshot | None = None
    harness: f.Name | None = None
    harness_revision: f.Name | None = None
    environment_revision: f.Name | None = None


class ForkSession(Body, frozen=True):
    """By checkpoint: conversation, disk and native state. By event: the conversation up to it; `through_sequence` saves looking for
    where it stands."""

    checkpoint_id: f.CheckpointId | None = None
    at_event: f.EventId | None = None
    through_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)] | None = None


class RenewAttempt(Body, frozen=True):
    lease_ms: f.LeaseMs = 60_000


class ReadyAttempt(Body, frozen=True):
    content: Content = UNSET


class FailAttempt(Body, frozen=True):
    reason: f.Code
    content: Content = UNSET


class CompleteRun(Body, frozen=True):
    """How the Run ended; `result: failed` settles it as failed."""

    result: Literal["completed", "failed"] = "completed"
    outcome: f.Code | None = None
    reward: float | None = None
    reason: f.Code | None = None
    content: Content = UNSET


class CancelRun(Body, frozen=True):
    reason: f.Code | None = None
    content: Content = UNSET


class OpenWait(Body, frozen=True):
    """Of the Run that the report names, or of none."""

    kind: f.WaitKind
    expires_at: f.Moment | None = None
    reason: f.Code | None = None
    content: Content = UNSET


class AnswerWait(Body, frozen=True):
    actor: f.OutsideId | None = None
    content: Content = UNSET


class RequestApproval(Body, frozen=True):
    """Asks for leave for one exact action, named by its digest."""

    action_digest: f.Digest
    expires_at: f.Moment | None = None
    content: Content = UNSET


class DecideApproval(Body, frozen=True):
    """`action_digest` repeats what is decided about, so that nobody approves another action than they saw."""

    decision: Literal["granted", "denied"]
    action_digest: f.Digest
    actor: f.OutsideId | None = None
    content: Content = UNSET


class Steer(Body, frozen=True):
    kind: f.Code
    target_run_id: f.RunId
    actor: f.OutsideId | None = None
    content: Content = UNSET


class DispatchEffect(Body, frozen=True):
    """Told before the request leaves for the provider."""

    provider: f.Name
    request_digest: f.Digest
    action_digest: f.Digest
    approval_id: f.ApprovalId | None = None
    content: Content = UNSET


class ReceiveReceipt(Body, frozen=True):
    receipt_digest: f.Digest
    outcome: Literal["succeeded", "failed"] = "succeeded"
    content: Content = UNSET


class ReconcileEffect(Body, frozen=True):
    evidence_kind: f.EvidenceKind
    outcome: f.EffectOutcome
    receipt_digest: f.Digest | None = None
    content: Content = UNSET


class DeadLetterBody(Body, frozen=True):
    """What a source could not read. `place` (a file and line) and `record` (base64 of its bytes) are sealed."""

    source_kind: f.Name
    reason: f.Code
    place: Annotated[str, Meta(max_length=4096)]
    record: bytes
    source_index: f.Count | None = None


class NoQuery(Body, frozen=True):
    """Takes no query parameters."""


class SessionsQuery(Body, frozen=True):
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    subject_id: f.SubjectId | None = None


class CheckpointsQuery(Body, frozen=True):
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class MaterialQuery(Body, frozen=True):
    part: Literal["snapshot", "native"] = "snapshot"


class ConversationQuery(Body, frozen=True):
    """Behind `after_sequence` of the session's own positions; from 0 on its ancestors come first, unless `lineage` is false.
    `require_complete`: refused where not all of it can be read."""

    after_sequence: f.Count = 0
    lineage: bool = True
    require_complete: bool = False


class EventsQuery(Body, frozen=True):
    """With `lineage`, the events of all ancestors come first, each up to where it was forked; it goes on behind the position
    `cursor`. A page is of one session."""

    after_sequence: f.Count = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    replay_only: bool = False
    lineage: bool = False
    cursor: f.PlaceInLineage | None = None


class ExportQuery(Body, frozen=True):
    """An export that broke off goes on at `from_sequence` with the `end_sequence` that its header named. With `lineage`, the exports
    of all ancestors come first, each to where it was forked; it goes on behind the position `cursor`."""

    from_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)] = 1
    end_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)] | None = None
    lineage: bool = False
    cursor: f.PlaceInLineage | None = None


class BundleQuery(Body, frozen=True):
    """`end_sequence`: as far as the session stood then; by default, as it stands now."""

    end_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)] | None = None


class GraphQuery(Body, frozen=True):
    """`through_sequence`: as it was when the session was there. `around`: only what lies within `depth` edges of a node.
    `format` goes before the header Accept."""

    through_sequence: Annotated[int, Meta(ge=1, le=f.INT64_MAX)] | None = None
    around: f.NodeId | None = None
    depth: Annotated[int, Meta(ge=0, le=20)] = 2
    format: Literal["json", "mermaid", "dot", "svg"] | None = None


class SupportQuery(Body, frozen=True):
    """All rows; or those of one exact tuple, where driver, sandbox_provider_revision, policy and execution_target are given. Its
    `release` is by default the one that answers."""

    capability: f.Code | None = None
    release: f.Name | None = None
    driver: f.Name | None = None
    sandbox_provider_revision: f.Name | None = None
    policy: f.Name | None = None
    execution_target: f.Name | None = None
    harness_revision: f.Name | None = None
    environment_revision: f.Name | None = None
