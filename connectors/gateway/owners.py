"""What a gateway asks of those who own partitions: tables of sessions, graphs, erasures."""

from collections.abc import Sequence
from typing import Protocol

from connectors.owner.messages import ErasureAnswer
from streams.log.position import Position
from streams.projections.checkpoints import CheckpointRow
from streams.projections.runs import LanePlace, RunRow
from streams.projections.sessions import SessionRow
from streams.query.graphs import GraphPage
from streams.query.pages import CheckpointsPage, EventsPage, SessionsPage, UnsettledPage


class Owners(Protocol):
    """What `connectors.owner.projector_owners.ProjectorOwners` offers. All raise `Retriable`s, `NotFound` and `Invalid`."""

    async def session(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionRow: ...  # fmt: skip

    async def sessions(
        self, workspace_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> SessionsPage: ...  # fmt: skip

    async def events(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        after: int, limit: int, max_bytes: int, wait_ms: int = 0,
        position: Position | None = None, wait_s: float = 5.0, at_end: bool = False,
    ) -> EventsPage: ...  # fmt: skip

    async def event_named(
        self, workspace_id: str, session_id: str, event_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> int: ...  # fmt: skip

    async def checkpoints(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, cursor: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointsPage: ...  # fmt: skip

    async def checkpoint(
        self, workspace_id: str, session_id: str, checkpoint_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> CheckpointRow: ...  # fmt: skip

    async def run(
        self, workspace_id: str, session_id: str, run_id: str, *, subject_id: str | None = None,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> RunRow: ...  # fmt: skip

    async def unsettled(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None, limit: int = 100,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> UnsettledPage: ...  # fmt: skip

    async def claimable(
        self, workspace_id: str, lanes: Sequence[str], *, subject_id: str | None = None, limit: int = 10,
        start: LanePlace | None = None, wait_ms: int = 0, wait_s: float = 5.0,
    ) -> Sequence[RunRow]: ...  # fmt: skip

    async def claimed(
        self, workspace_id: str, claim_digest: str, *, subject_id: str | None = None, wait_s: float = 5.0
    ) -> RunRow | None: ...  # fmt: skip


class GraphOwners(Protocol):
    """What `connectors.owner.graph_owners.GraphOwners` offers, and raises."""

    async def graph(
        self, workspace_id: str, session_id: str, *, subject_id: str | None = None,
        node_id: str | None, depth: int, nodes_max: int, items_max: int,
        position: Position | None = None, wait_s: float = 5.0,
    ) -> GraphPage: ...  # fmt: skip


class ErasureOwners(Protocol):
    """What `connectors.owner.erasure_owners.ErasureOwners` offers, and raises."""

    async def erasure(self, workspace_id: str, erasure_id: str, *, wait_s: float = 5.0) -> ErasureAnswer | None: ...
