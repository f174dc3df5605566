"""The sessions that a session came of by forks, the oldest first, and how far each of them belongs to it.

A fork is by reference: its own positions begin at 1, and what came before stands in its source, up to a position. A place in a
lineage is therefore a session and a position of it: `sess_…:sequence`.
"""

import re
from typing import Final, NamedTuple

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import Invalid, ProjectionBehind, RecordUnreadable
from streams.projections.sessions import SessionRow
from streams.session.rules.forks import DEEPEST

CURSOR_PATTERN: Final = r"^sess_[0-9a-f]{32}:(0|[1-9][0-9]{0,17})$(?!\n)"
_BYTES: Final = 1 << 20


class Prefix(NamedTuple):
    """Positions 1 to `through_sequence` of a session."""

    session_id: str
    through_sequence: int


class Place(NamedTuple):
    """A position of a session in a lineage; 0: before its first."""

    session_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.session_id}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Raises `Invalid` (request.malformed)."""
        if re.match(CURSOR_PATTERN, text) is None:
            raise Invalid("cursor: sess_…:sequence", code="request.malformed")
        session_id, _, sequence = text.partition(":")
        return cls(session_id, int(sequence))


async def ancestors(gateway: Gateway, call: Call, row: SessionRow) -> list[Prefix]:
    """What comes before position 1 of a session; empty where it is no fork.

    Raises what the owners raise, `ProjectionBehind` where a source's table is behind the fork too, and `RecordUnreadable`
    for more than `DEEPEST` ancestors: no authority accepts those.
    """
    found: list[Prefix] = []
    lineage = row.lineage
    while lineage is not None:
        if len(found) == DEEPEST:
            raise RecordUnreadable(f"{row.session_id}: more than {DEEPEST} ancestors", code="lineage.too_deep")
        found.append(Prefix(lineage.source_session_id, lineage.through_sequence))
        lineage = (await _source(gateway, call, found[-1])).lineage
    return found[::-1]


async def _source(gateway: Gateway, call: Call, prefix: Prefix) -> SessionRow:
    """The row of a source that holds the prefix whole. Its partition, and with it its table, are others than the fork's."""
    principal, wait_s = call.principal, gateway.limits.position_wait_s
    session_id, through = prefix
    row = await gateway.owners.session(principal.workspace_id, session_id, subject_id=principal.subject_id, wait_s=wait_s)
    if row.sequence < through:
        page = await gateway.owners.events(
            principal.workspace_id, session_id, subject_id=principal.subject_id,
            after=through - 1, limit=1, max_bytes=_BYTES, wait_s=wait_s, at_end=True,
        )  # fmt: skip
        row = page.session
    principal.require_sight_of(session_id, row.workspace_id, row.subject_id)
    if row.sequence < through:
        raise ProjectionBehind(f"{session_id} is told at {row.sequence}, and its fork begins behind {through}", retry_after_s=1)
    return row


def following(place: Place, prefixes: list[Prefix], session_id: str) -> list[Prefix]:
    """The prefixes from the one that a place lies in on; none where it lies in the session itself.

    Raises `Invalid` (request.malformed) for a place that the lineage does not have.
    """
    for index, prefix in enumerate(prefixes):
        if prefix.session_id == place.session_id and place.sequence <= prefix.through_sequence:
            return prefixes[index:]
    if place.session_id == session_id:
        return []
    raise Invalid(f"cursor: {place} is in no ancestor of {session_id}", code="request.malformed")
