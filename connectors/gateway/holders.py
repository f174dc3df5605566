"""Whether the caller holds an attempt, as the table has it.

The authority alone decides about reports. This keeps those away who hold nothing from what leads to no command: bytes that are
stored for nobody, content that is read by nobody who works on it.
"""

import asyncio
import time
from typing import Final

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import StreamsError
from streams.projections.runs import RunRow
from streams.session import refusals
from streams.session.commands import Report
from streams.session.lifecycles import SETTLED_RUN

_PAUSE_S: Final = 0.05


async def run_of(gateway: Gateway, call: Call, session_id: str, run_id: str) -> RunRow:
    """Raises `NotFound`, and what the owner raises."""
    principal = call.principal
    return await gateway.owners.run(
        principal.workspace_id, session_id, run_id, subject_id=principal.subject_id,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip


async def require_holder(gateway: Gateway, call: Call, session_id: str, run_id: str, generation: int) -> None:
    """The caller holds exactly this attempt, and it lives. A table that does not know of it yet is waited for.

    Raises `StreamsError` (runtime.attempt_fenced), `NotFound`, and what the owner raises.
    """
    until_s = time.monotonic() + gateway.limits.position_wait_s
    row = await run_of(gateway, call, session_id, run_id)
    while row.generation < generation and time.monotonic() + _PAUSE_S < until_s:
        await asyncio.sleep(_PAUSE_S)
        row = await run_of(gateway, call, session_id, run_id)
    if row.generation != generation or row.principal_id != call.principal.principal_id or not row.is_held:
        raise _fenced(row)


async def require_not_fenced(gateway: Gateway, call: Call, session_id: str, report: Report) -> None:
    """The table does not know better than that the caller holds this attempt: it may be behind, and the attempt newer than it.

    Raises `StreamsError` (runtime.attempt_fenced, runtime.already_settled), `NotFound`.
    """
    row = await run_of(gateway, call, session_id, report.run_id)
    if row.status in SETTLED_RUN:
        raise StreamsError(f"{row.run_id} is {row.status}", code=refusals.ALREADY_SETTLED)
    if row.generation < report.generation:
        return
    told = (row.generation, row.native_task_id, row.principal_id)
    if told != (report.generation, report.native_task_id, call.principal.principal_id) or not row.is_held:
        raise _fenced(row)


def _fenced(row: RunRow) -> StreamsError:
    return StreamsError(f"{row.run_id} is at generation {row.generation}", code=refusals.ATTEMPT_FENCED)
