"""Questions and refusals between gateways and owners: msgpack maps, POST /internal/v1/<question>.

    session      SessionQuestion     -> SessionRow
    sessions     SessionsQuestion    -> SessionsPage
    events       EventsQuestion      -> EventsPage
    event_named  EventNamedQuestion  -> a sequence
    checkpoints  CheckpointsQuestion -> CheckpointsPage
    checkpoint   ItemQuestion        -> CheckpointRow
    run          ItemQuestion        -> RunRow
    unsettled    UnsettledQuestion   -> UnsettledPage
    claimable    ClaimableQuestion   -> RunRow, any number of them
    claimed      ClaimedQuestion     -> RunRow, any number of them
    applied      AppliedQuestion     -> nil
    graph        GraphQuestion       -> GraphPage         (of the owners of graphs, which answer this and `applied`)
    agent_scope  AgentScopeQuestion  -> bytes or nil      (these three of the owners of agents' checkpoints: values of their topic)
    agent_id     AgentIdQuestion     -> bytes or nil
    agent_history AgentHistoryQuestion -> bytes, any number of them, or nil
    erasure      ErasureQuestion     -> ErasureAnswer or nil   (of the custodian that owns the partition of workspaces.commands)

A refusal is a `Refusal` under the status that `STATUSES` has for its class.
"""

from typing import Final

from msgspec import Struct

from streams.errors import (
    BrokerUnavailable,
    Invalid,
    NotFound,
    NotOwner,
    NotPermitted,
    Overloaded,
    ProjectionBehind,
    Retriable,
    StreamsError,
)
from streams.projections.runs import LanePlace

PREFIX: Final = "/internal/v1/"


class SessionQuestion(Struct, frozen=True):
    """`position`: text of a Position, or None. `wait_s`: the budget for waiting. `subject_id`: the only one whose sessions
    are there for who asks; None: all of the workspace are."""

    workspace_id: str
    session_id: str
    position: str | None
    wait_s: float
    subject_id: str | None = None


class SessionsQuestion(Struct, frozen=True):
    """`partitions`: those that the asked process is thought to own."""

    workspace_id: str
    subject_id: str | None
    partitions: tuple[int, ...]
    cursor: str | None
    limit: int
    position: str | None
    wait_s: float


class EventsQuestion(Struct, frozen=True):
    """`follow_s`: how long to wait for a first event above `after`; `at_end`: answer from a table that holds all that the
    log held when it was asked. Else as `SessionQuestion`."""

    workspace_id: str
    session_id: str
    after: int
    limit: int
    max_bytes: int
    follow_s: float
    position: str | None
    wait_s: float
    subject_id: str | None = None
    at_end: bool = False


class EventNamedQuestion(Struct, frozen=True):
    """Else as `SessionQuestion`."""

    workspace_id: str
    session_id: str
    event_id: str
    position: str | None
    wait_s: float
    subject_id: str | None = None


class CheckpointsQuestion(Struct, frozen=True):
    """Else as `SessionQuestion`."""

    workspace_id: str
    session_id: str
    cursor: str | None
    limit: int
    position: str | None
    wait_s: float
    subject_id: str | None = None


class ItemQuestion(Struct, frozen=True):
    """One thing of a session, by its id. Else as `SessionQuestion`."""

    workspace_id: str
    session_id: str
    item_id: str
    position: str | None
    wait_s: float
    subject_id: str | None = None


class UnsettledQuestion(Struct, frozen=True):
    """Answered from a table that holds all that the log held when it was asked. Else as `SessionQuestion`."""

    workspace_id: str
    session_id: str
    limit: int
    position: str | None
    wait_s: float
    subject_id: str | None = None


class ClaimableQuestion(Struct, frozen=True):
    """`partitions`: as `SessionsQuestion` has them. `follow_s`: how long to wait for a Run where there is none."""

    workspace_id: str
    subject_id: str | None
    lanes: tuple[str, ...]
    partitions: tuple[int, ...]
    limit: int
    follow_s: float
    wait_s: float
    start: LanePlace | None = None


class ClaimedQuestion(Struct, frozen=True):
    workspace_id: str
    subject_id: str | None
    claim_digest: str
    partitions: tuple[int, ...]
    wait_s: float


class AppliedQuestion(Struct, frozen=True):
    position: str
    wait_s: float


class GraphQuestion(Struct, frozen=True):
    """Around `node_id`, to `depth` and at most `nodes_max` nodes; without one the whole graph of at most `items_max` items."""

    workspace_id: str
    session_id: str
    node_id: str | None
    depth: int
    nodes_max: int
    items_max: int
    position: str | None
    wait_s: float
    subject_id: str | None = None


class AgentScopeQuestion(Struct, frozen=True):
    scope_key: str
    wait_s: float


class AgentIdQuestion(Struct, frozen=True):
    workspace_id: str
    checkpoint_id: str
    wait_s: float


class AgentHistoryQuestion(Struct, frozen=True):
    """At most `limit` versions below `before`."""

    workspace_id: str
    checkpoint_id: str
    limit: int
    before: int | None
    wait_s: float


class ErasureQuestion(Struct, frozen=True):
    workspace_id: str
    erasure_id: str
    wait_s: float


class Awaited(Struct, frozen=True):
    """Who has not confirmed yet. `holder`: its id, or what is waited for instead; `reason`: in words, without content."""

    holder: str
    reason: str


class ErasureAnswer(Struct, frozen=True):
    """`row` is the value of its record in `sessions.retention`, as `streams.log.retention.decode_retention` reads it."""

    row: bytes
    awaited: tuple[Awaited, ...]


class Refusal(Struct, frozen=True):
    code: str
    detail: str
    retry_after_s: float | None = None


STATUSES: Final[tuple[tuple[type[StreamsError], int], ...]] = (
    (NotOwner, 421),
    (NotFound, 404),
    (Invalid, 400),
    (NotPermitted, 401),
    (Retriable, 503),
    (StreamsError, 500),
)
"""The first class that fits."""

_BY_CODE: Final[dict[str, type[Retriable]]] = {kind.code: kind for kind in (ProjectionBehind, Overloaded, BrokerUnavailable)}


def refusal(error: StreamsError) -> tuple[int, Refusal]:
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    return status, Refusal(error.code, error.detail, error.retry_after_s if isinstance(error, Retriable) else None)


def refused(status: int, said: Refusal) -> StreamsError:
    """The error that `refusal` was made of."""
    kind = next((kind for kind, known in STATUSES if known == status), StreamsError)
    if issubclass(kind, Retriable):
        if kind is Retriable:
            kind = _BY_CODE.get(said.code, Retriable)
        return kind(said.detail, retry_after_s=1.0 if said.retry_after_s is None else said.retry_after_s, code=said.code)
    return kind(said.detail, code=said.code)
