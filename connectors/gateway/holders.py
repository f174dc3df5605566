"""Whether the caller holds an attempt, as the table has it.

The authority alone decides about reports. This keeps those away who hold nothing from what leads to no command: bytes that are
stored for nobody, content that is read by nobody who works on it.
"""

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import StreamsError
from streams.projections.runs import RunRow
from streams.session import refusals
from streams.session.commands import Report
from streams.session.lifecycles import LIVE_ATTEMPT, SETTLED_RUN


async def run_of(gateway: Gateway, call: Call, session_id: str, run_id: str) -> RunRow:
    """Raises `NotFound`, and what the owner raises."""
    principal = call.principal
    return await gateway.owners.run(
        principal.workspace_id, session_id, run_id, subject_id=principal.subject_id,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip


async def require_holder(gateway: Gateway, call: Call, session_id: str, run_id: str, generation: int) -> RunRow:
    """The caller holds exactly this attempt, and it lives. Raises `StreamsError` (runtime.attempt_fenced), `NotFound`."""
    row = await run_of(gateway, call, session_id, run_id)
    held = row.generation == generation and row.principal_id == call.principal.principal_id
    if not held or row.attempt_status not in LIVE_ATTEMPT or row.status in SETTLED_RUN:
        raise _fenced(row)
    return row


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
    if told != (report.generation, report.native_task_id, call.principal.principal_id) or row.attempt_status not in LIVE_ATTEMPT:
        raise _fenced(row)


def _fenced(row: RunRow) -> StreamsError:
    return StreamsError(f"{row.run_id} is at generation {row.generation}", code=refusals.ATTEMPT_FENCED)
