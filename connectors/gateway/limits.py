"""The gateway's own limits, read from the environment once. Every variable starts with SESSION_STREAMS_GATEWAY_."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.edge.events import EVENTS_MAX, JSON_DEPTH_MAX
from connectors.edge.submit import BYTES_MAX, COMMANDS_MAX
from streams.settings import read_fields

_PREFIX = "SESSION_STREAMS_GATEWAY_"


@dataclass(frozen=True, kw_only=True)
class GatewayLimits:
    """Sizes in bytes, times end in their unit."""

    body_bytes_max: int = 65 * 1024 * 1024
    """Of a request: 64 MiB of content and its structure. More is refused before it is read. What is above the 8 MiB that a command
    holds goes to the blob store."""
    bodies_bytes_max: int = 128 * 1024 * 1024
    """Of the requests under way, together."""
    events_max: int = EVENTS_MAX
    """Of one append."""
    json_depth_max: int = JSON_DEPTH_MAX
    mcp_origin: str = ""
    """Where browsers find this gateway, if not where their requests say: pages of this origin may speak MCP."""
    header_bytes_max: int = 32 * 1024
    header_timeout_s: float = 10.0
    """From a connection, or the first byte of a further request, to the end of its headers."""
    body_timeout_s: float = 30.0
    """Longest silence within a body."""
    body_total_s: float = 120.0
    """From the first wait for a body to its end."""
    requests_per_s: float = 2000.0
    """Of one key, over time; `requests_burst` at once."""
    requests_burst: int = 4000
    commands_max: int = COMMANDS_MAX
    """Under way at once, at most; what comes beyond is refused."""
    patience_s: float = 0.5
    """How long a change may be under way before fewer are let in."""
    commands_bytes_max: int = BYTES_MAX
    reads_max: int = 1024
    """Read requests under way at once."""
    followers_max: int = 512
    """Open event streams."""
    exports_max: int = 32
    """Under way at once."""
    export_patience_s: float = 20.0
    """How long an export that has begun waits for an owner of its session."""
    claims_max: int = 2048
    """Claims by lane that wait for a Run."""
    transfers_max: int = 8
    """Uploads and downloads of recovery material under way at once; each holds some MiB."""
    upload_bytes_max: int = 16 * 1024**3
    """Of one snapshot."""
    capsule_bytes_max: int = 64 * 1024 * 1024
    """Of the content of a capsule that is to be imported, decoded."""
    transfers_of_a_key_max: int = 4
    """Of those, what one key may have under way: a slow caller leaves room for the others."""
    transfer_bytes_per_s_min: float = 32 * 1024
    """On average over the time that a caller is waited for in a transfer, once that is longer than `transfer_start_s`."""
    transfer_start_s: float = 30.0
    download_total_s: float = 3600.0
    """From the first byte of a download to its last. How long an upload may take is a setting of all roles
    (SESSION_STREAMS_UPLOAD_TOTAL_S), since the sweeper goes by it."""
    conversations_max: int = 64
    """Histories under way to workers at once."""
    stall_s: float = 60.0
    """How long a caller who takes nothing of an answer is waited for."""
    heartbeat_s: float = 10.0
    """Silence on an event stream before a comment is sent, and how often its key is looked at again."""
    position_wait_s: float = 5.0
    """How long a read waits for the position it was given."""
    page_bytes_max: int = 4 * 1024 * 1024
    """Of sealed events in one page."""
    opened_bytes_max: int = 16 * 1024 * 1024
    """Of opened content in one page, which ends with the event that reaches it."""
    opened_total_bytes_max: int = 256 * 1024 * 1024
    """Of answers of a megabyte and more that wait for their callers."""
    facts_max: int = 100_000
    """Sessions whose workspace, subject and policy are remembered."""
    graphs_max: int = 8
    """Answers of graphs under way at once."""
    graph_items_max: int = 20_000
    """Nodes, edges and gaps of a whole graph; what is larger is read in parts."""
    graph_around_max: int = 500
    """Nodes of a neighbourhood."""
    graph_events_max: int = 200_000
    """Folded for a graph as it was."""
    graph_fold_s: float = 20.0
    """How long folding them may take."""
    graph_drawn_nodes_max: int = 2000
    graph_drawn_edges_max: int = 6000
    graph_layout_s: float = 5.0
    """How long laying out a drawing may take."""
    threads: int = 16
    """For the keyring, whose writes wait for the disk together, and for large bodies."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "GatewayLimits":
        """Raises `Misconfigured` naming the variable that cannot be read."""
        return cls(**read_fields(cls, _PREFIX, environment))  # type: ignore[arg-type]
