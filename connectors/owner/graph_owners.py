"""Graphs by way of the processes that own them, which are not the projectors: the group of the graph role names them."""

import msgspec

from connectors.owner.asker import Asker, FindsOwners
from connectors.owner.messages import GraphQuestion
from streams.log.owners import GroupOwners
from streams.log.position import Position
from streams.log.topics import Topics
from streams.projections.graph.handler import ROLE
from streams.query.graphs import GraphPage
from streams.settings import Settings

_page = msgspec.msgpack.Decoder(GraphPage).decode


class GraphOwners(Asker):
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, token: str, finder: FindsOwners | None = None) -> None:
        super().__init__(settings.partitions, token, finder or GroupOwners(settings, ROLE, Topics(settings.topic_prefix).events))

    async def graph(
        self,
        workspace_id: str,
        session_id: str,
        *,
        subject_id: str | None = None,
        node_id: str | None,
        depth: int,
        nodes_max: int,
        items_max: int,
        position: Position | None = None,
        wait_s: float = 5.0,
    ) -> GraphPage:
        """Around `node_id`, or the whole. Raises `Retriable`s, `NotFound` and `Invalid` (graph.too_large)."""

        def question(here: str | None, left_s: float) -> GraphQuestion:
            return GraphQuestion(workspace_id, session_id, node_id, depth, nodes_max, items_max, here, left_s, subject_id)

        return await self._ask_of(session_id, "graph", question, _page, position, wait_s)
