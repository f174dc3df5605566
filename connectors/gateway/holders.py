"""Whether the caller holds an attempt, as the table has it.

The authority alone decides about reports. This keeps those away who hold nothing from what leads to no command: bytes that are
stored for nobody, content that is read by nobody who works on it.
"""

import asyncio
import time
from typing import Final

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import ProjectionBehind, StreamsError
from streams.projections.runs import RunRow
from streams.session import refusals
from streams.session.commands import Report
from streams.session.lifecycles import CLOSED, SETTLED_RUN

_PAUSE_S: Final = 0.05


async def run_of(gateway: Gateway, call: Call, session_id: str, run_id: str) -> RunRow:
    """Raises `NotFound`, and what the owner raises."""
    principal = call.principal
    return await gateway.owners.run(
        principal.workspace_id, session_id, run_id, subject_id=principal.subject_id,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip


async def require_holder(gateway: Gateway, call: Call, session_id: str, report: Report) -> None:
    """The caller holds exactly this attempt, under its native task now; it lives, and its session is open. A table that does not know
    of it yet is waited for.

    Raises `StreamsError` (runtime.attempt_fenced, runtime.session_closed), `NotFound`, and what the owner raises.
    """
    await _require(gateway, call, session_id, report, await _awaited(gateway, call, session_id, report))


async def require_not_fenced(gateway: Gateway, call: Call, session_id: str, report: Report) -> None:
    """As `require_holder`, but an attempt that the table still does not know of may be newer than it, and is told to come again.

    Raises `StreamsError` (also runtime.already_settled), `ProjectionBehind`, `NotFound`, and what the owner raises.
    """
    row = await _awaited(gateway, call, session_id, report)
    if row.status in SETTLED_RUN:
        raise StreamsError(f"{row.run_id} is {row.status}", code=refusals.ALREADY_SETTLED)
    if row.generation < report.generation:
        raise ProjectionBehind(f"{row.run_id} is known at generation {row.generation}")
    await _require(gateway, call, session_id, report, row)


async def _awaited(gateway: Gateway, call: Call, session_id: str, report: Report) -> RunRow:
    """The Run as the table has it once it knows of this attempt and task, or of what is behind them; at the latest after
    `position_wait_s`."""
    until_s = time.monotonic() + gateway.limits.position_wait_s
    while True:
        row = await run_of(gateway, call, session_id, report.run_id)
        # A harness that started anew has another task.
        moved = row.generation == report.generation and row.native_task_id != report.native_task_id and _holds(row, call)
        ahead = moved or row.generation < report.generation
        if row.status in SETTLED_RUN or not ahead or time.monotonic() + _PAUSE_S >= until_s:
            return row
        await asyncio.sleep(_PAUSE_S)


async def _require(gateway: Gateway, call: Call, session_id: str, report: Report, row: RunRow) -> None:
    if (row.generation, row.native_task_id) != (report.generation, report.native_task_id) or not _holds(row, call):
        over = row.generation == report.generation and not row.is_held
        refused = refusals.fenced(row.run_id, row.generation, over=over)
        raise StreamsError(refused.detail, code=refused.code)
    if (await gateway.session(call, session_id)).status == CLOSED:
        raise StreamsError(f"{session_id} is closed", code=refusals.SESSION_CLOSED)


def _holds(row: RunRow, call: Call) -> bool:
    return row.is_held and row.principal_id == call.principal.principal_id
