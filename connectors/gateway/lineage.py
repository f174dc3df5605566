"""The past of a fork: its ancestors, oldest first, each up to where it was forked, and then the session itself.

A place in it is written `sess_...:sequence`. Every session keeps its own positions and its own hash chain.
"""

import re
from typing import Final, NamedTuple

from msgspec import structs

from connectors.gateway.call import Call
from connectors.gateway.service import Gateway
from streams.errors import Invalid, ProjectionBehind, StreamsError
from streams.log.record import decode_event
from streams.projections.sessions import SessionRow
from streams.query.pages import EventsPage, Gap
from streams.query.queries import MISSING
from streams.session.limits import ANCESTORS_MAX

_PLACE: Final = re.compile(r"(sess_[0-9a-f]{32}):(0|[1-9][0-9]{0,17})")


class Stretch(NamedTuple):
    """A session's positions up to `through`; None: as far as there are."""

    session_id: str
    through: int | None


async def lineage_of(gateway: Gateway, call: Call, row: SessionRow) -> list[Stretch]:
    """Ends with the session itself. Raises what the owners raise: an ancestor is seen by whoever sees its fork."""
    principal, found = call.principal, [Stretch(row.session_id, None)]
    while row.lineage is not None:
        if len(found) > ANCESTORS_MAX:
            raise StreamsError(f"{found[-1].session_id} has more than {ANCESTORS_MAX} ancestors")
        source_id = row.lineage.source_session_id
        found.insert(0, Stretch(source_id, row.lineage.through_sequence))
        row = await gateway.owners.session(
            principal.workspace_id, source_id, subject_id=principal.subject_id, wait_s=gateway.limits.position_wait_s
        )
        principal.require_sight_of(source_id, row.workspace_id, row.subject_id)
    return found


def within(page: EventsPage, stretch: Stretch, after: int) -> EventsPage:
    """What a page that was read behind `after` tells of a stretch. Where its owner has nothing more, what is left is missing.

    Raises `ProjectionBehind` where the owner does not know of all of the stretch yet.
    """
    until = stretch.through
    if until is None or (after < page.next_after <= until):
        return page
    if page.next_after > until:
        events = tuple([value for value in page.events if decode_event(value).sequence <= until])
        return structs.replace(page, events=events, gaps=tuple([gap for gap in page.gaps if gap.first_sequence <= until]), next_after=until)
    if page.end_sequence < until:
        raise ProjectionBehind(f"{stretch.session_id} is told at {page.end_sequence}, and goes to {until}", retry_after_s=1)
    return structs.replace(page, gaps=(Gap(after + 1, until, MISSING),), next_after=until)


def behind(lineage: list[Stretch], index: int, sequence: int) -> tuple[int, int]:
    """The place of what follows a position: at the end of a stretch, the beginning of the next."""
    through = lineage[index].through
    return (index, sequence) if through is None or sequence < through else (index + 1, 0)


def written(session_id: str, sequence: int) -> str:
    return f"{session_id}:{sequence}"


def place_in(lineage: list[Stretch], text: str, name: str) -> tuple[int, int]:
    """Which stretch a written place is in, and the sequence there. Raises `Invalid` (request.malformed, request.invalid)."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise Invalid(f"{name}: expected sess_...:sequence", code="request.malformed")
    for index, stretch in enumerate(lineage):
        if stretch.session_id == found[1]:
            sequence = int(found[2])
            return index, sequence if stretch.through is None else min(sequence, stretch.through)
    raise Invalid(f"{name}: {found[1]} is neither the session nor an ancestor of it")
