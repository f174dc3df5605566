"""Client of Session Streams: `Client` and `AsyncClient` append to, read and follow durable session logs.

It speaks the REST interface and imports nothing of the service. What fails for a moment is tried again under the same
Idempotency-Key; what is refused is an exception of `session_streams.errors`.
"""

from session_streams.agent_checkpoints import AgentCheckpoint, SavedCheckpoint
from session_streams.async_client import AsyncClient
from session_streams.capsules import Capsule, CapsuleImport, CapsuleRefused
from session_streams.client import Client
from session_streams.erasures import Awaited, Erasure, Policy
from session_streams.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    DigestMismatch,
    ErasureTakesLonger,
    ExportChanged,
    Forbidden,
    Invalid,
    KeptElsewhere,
    NotFound,
    RateLimited,
    SessionStreamsError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from session_streams.models import Answer, Appended, Event, Gap, Report, Session
from session_streams.recovery import Checkpoint, CheckpointCreated, Claim, Fork, HistoryEnd, HistoryGap, HistoryLine, Upload
from session_streams.retries import Retries

__all__ = [
    "AgentCheckpoint",
    "Answer",
    "ApiError",
    "Appended",
    "AsyncClient",
    "Awaited",
    "Capsule",
    "CapsuleImport",
    "CapsuleRefused",
    "Checkpoint",
    "CheckpointCreated",
    "Claim",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "DigestMismatch",
    "Erasure",
    "ErasureTakesLonger",
    "Event",
    "ExportChanged",
    "Forbidden",
    "Fork",
    "Gap",
    "HistoryEnd",
    "HistoryGap",
    "HistoryLine",
    "Invalid",
    "KeptElsewhere",
    "NotFound",
    "Policy",
    "RateLimited",
    "Report",
    "Retries",
    "SavedCheckpoint",
    "Session",
    "SessionStreamsError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Upload",
]
