"""Gives out what a checkpoint retains, to workers only: opened on its way out of the blob store, some MiB of it here at once.

The size is told first, so that a caller notices an answer that is cut; and it is cut where what lies there is not what was sealed.
Where the snapshot is kept by a provider, the answer is its reference, as JSON.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

import structlog

from connectors.edge.compose import facts_of_row
from connectors.edge.erased import erased, people_of
from connectors.gateway import bodies
from connectors.gateway.answers import JSON, Answer
from connectors.gateway.asgi import Send
from connectors.gateway.boundaries import event_at
from connectors.gateway.call import Call
from connectors.gateway.checkpoints import checkpoint_of
from connectors.gateway.guards import Pace
from connectors.gateway.lineage import lineage_of
from connectors.gateway.route import Route, Sendable
from connectors.gateway.service import Gateway
from connectors.gateway.snapshots import OCTETS
from connectors.gateway.streaming import Left, gone, send_part
from streams.custody.keyring import SecretRef
from streams.errors import ContentUnavailable, NotFound, StreamsError
from streams.projections.checkpoints import CheckpointRow
from streams.sealed_blobs import Download, Place
from streams.session import refusals
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED, NO_SNAPSHOT, REFERENCED

_GONE: Final = frozenset({CONTENT_EXPIRED, CONTENT_ERASED})
_log = structlog.get_logger(__name__)


async def content(gateway: Gateway, call: Call, query: bodies.MaterialQuery) -> Sendable:
    row = await checkpoint_of(gateway, call, call.path["session_id"], call.path["checkpoint_id"])
    if gateway.clock() >= row.expires_at:
        raise _expired(row, "expired")
    people = await _require_not_erased(gateway, call, row)
    if row.origin_session_id != row.session_id:
        # Its bytes, and what is told of them, are with the session that it was made in.
        row = await checkpoint_of(gateway, call, row.origin_session_id, row.checkpoint_id)
    if query.part == "snapshot" and row.snapshot_kind == REFERENCED:
        return await _reference(gateway, call, row)
    upload_id, digest = (row.snapshot_id, row.snapshot_digest) if query.part == "snapshot" else (row.native_id, row.native_digest)
    if upload_id is None or digest is None:
        if query.part == "native" and row.snapshot_kind != NO_SNAPSHOT:
            raise NotFound(f"{row.checkpoint_id} has no native material: its continuation is {row.continuation_kind}")
        raise _expired(row, "metadata only")
    return await _downloading(gateway, call, row, upload_id, digest, people)


async def _require_not_erased(gateway: Gateway, call: Call, row: CheckpointRow) -> tuple[SecretRef, ...]:
    """A snapshot has a secret of its own, which goes a moment after those of the people whose erasure takes it. Gives these people.

    Raises as `_expired`, and what the owners raise.
    """
    session = await gateway.session(call, row.session_id)
    facts = facts_of_row(session)
    try:
        await gateway.require_not_erased(facts, (row.session_id, row.origin_session_id))
    except ContentUnavailable as error:
        raise _expired(row, error.code) from None
    for ancestor in (await lineage_of(gateway, call, session))[:-1]:
        # Of a fork the checkpoints so far are erased with it; a later one has not seen it.
        if row.created_at <= gateway.erased.told_at(ancestor.session_id):
            raise _expired(row, CONTENT_ERASED)
    return people_of(facts.workspace_id, facts.subject_id, row.session_id, row.origin_session_id)


async def _downloading(
    gateway: Gateway, call: Call, row: CheckpointRow, upload_id: str, digest: str, people: tuple[SecretRef, ...]
) -> "MaterialStream":
    with ExitStack() as places:
        gateway.transfers.take()
        places.callback(gateway.transfers.give_back)
        gateway.transfer_shares.take(call.principal.principal_id)
        places.callback(gateway.transfer_shares.give_back, call.principal.principal_id)
        try:
            download = await gateway.snapshots.download(Place(row.workspace_id, row.origin_session_id), upload_id, digest=digest)
        except NotFound:
            raise _expired(row, "its bytes are gone") from None
        except ContentUnavailable as error:
            raise _expired(row, error.code) if error.code in _GONE else error from None
        return MaterialStream(gateway, call, download, people, places.pop_all())


async def _reference(gateway: Gateway, call: Call, row: CheckpointRow) -> Answer:
    event = await event_at(gateway, call, row.session_id, row.sequence)
    opened = await gateway.in_thread(partial(gateway.sealer.open_many, [event]))
    text = opened[0]
    if text is None or isinstance(text, ContentUnavailable):
        raise _expired(row, "its reference cannot be read")
    gateway.still(call)
    return Answer(200, text, content_type=JSON)


def _expired(row: CheckpointRow, why: str) -> StreamsError:
    return StreamsError(f"{row.checkpoint_id}: {why}", code=refusals.CHECKPOINT_EXPIRED)


class MaterialStream:
    """Answers with the bytes of one upload."""

    status = 200

    def __init__(self, gateway: Gateway, call: Call, download: Download, people: tuple[SecretRef, ...], places: ExitStack) -> None:
        """Takes over `places` among the transfers. `people`: whose erasure ends it."""
        self._gateway, self._call, self._download, self._people, self._places = gateway, call, download, people, places

    async def send(self, send: Send) -> None:
        headers = [
            (b"content-type", OCTETS.encode()),
            (b"content-length", str(self._download.size).encode()),
            (b"cache-control", b"no-store"),
        ]
        limits = self._gateway.limits
        pace, until_s = Pace(limits.transfer_bytes_per_s_min, limits.transfer_start_s), time.monotonic() + limits.download_total_s
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(gone(self._call.receive))]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with suppress(Left):
                async for chunk in self._download.chunks:
                    self._gateway.still(self._call)
                    if self._gateway.erased.known(self._people):
                        raise erased()
                    with pace.waiting():
                        await send_part(send, chunk, min(limits.stall_s, max(0.0, until_s - time.monotonic())))
                    self._gateway.metrics.transferred("download", len(chunk))
                    if ends[0].done() or not pace.moved(len(chunk)):
                        raise Left
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except StreamsError as error:
            # Without its end, the answer is cut by the server: what is short of its length is not taken for whole.
            _log.warning("download_cut", code=error.code, detail=error.detail, session_id=self._call.path["session_id"])
        finally:
            self._places.close()
            for task in ends:
                task.cancel()
            await _closed(self._download.chunks)


async def _closed(chunks: AsyncIterator[bytes]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


ROUTES = (
    Route(
        method="GET", path="/v1/sessions/{session_id}/checkpoints/{checkpoint_id}/content", name="checkpoint_content",
        summary="What a checkpoint retains, byte for byte", handler=content, scope="checkpoints:read", also_scope="runs:claim",
        query=bodies.MaterialQuery, media_type=OCTETS,
        other_media_types={JSON: "Where a provider keeps the snapshot: its name and the reference to it."},
        refusals=("runtime.checkpoint_expired", "runtime.checkpoint_boundary", "service.blob_store_unavailable"),
    ),
)  # fmt: skip
