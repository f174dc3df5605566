"""Whether a capsule may be made of a session: it is idle, and keeps content.

Judged by thing and not by sums: the projector has a row for each that nothing has ended yet (`streams.projections.unsettled`). It is
asked where the log ends, and the command expects that very position: what moves in between refuses it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from connectors.edge.compose import SessionFacts
from connectors.gateway.call import Call
from connectors.gateway.capsule_facts import UNREADABLE
from connectors.gateway.problems import Lacking
from connectors.gateway.service import Gateway
from streams.projections.unsettled import APPROVAL, RUN, WAIT, Unsettled
from streams.query.pages import UnsettledPage
from streams.session import refusals
from streams.session.words import CONTENT_OMITTED, ZDR

NOT_IDLE: Final = "runtime.session_not_idle"
WAIT_OPEN: Final = "runtime.wait_open"
INELIGIBLE: Final = "runtime.capsule_ineligible"

_LOOKED_AT_MAX: Final = 1000
_NAMED_MAX: Final = 100


async def unsettled(gateway: Gateway, call: Call, session_id: str) -> UnsettledPage:
    """As the session stands at the end of its log. Raises what the owner raises."""
    principal = call.principal
    page = await gateway.owners.unsettled(
        principal.workspace_id, session_id, subject_id=principal.subject_id, limit=_LOOKED_AT_MAX,
        position=call.position(), wait_s=gateway.limits.position_wait_s,
    )  # fmt: skip
    principal.require_sight_of(session_id, page.session.workspace_id, page.session.subject_id)
    return page


def require_kept(facts: SessionFacts, page: UnsettledPage) -> None:
    """That the capsule's own content would be retained. Raises `Lacking`."""
    if facts.policy_mode == ZDR:
        missing = (f"{page.session.sequence + 1} {CONTENT_OMITTED}",)
        raise Lacking(
            f"{facts.session_id} keeps no content, so none of a capsule: {missing[0]}", code=refusals.HISTORY_UNAVAILABLE, missing=missing
        )


def require_idle(page: UnsettledPage, now: int) -> None:
    """Raises `Lacking`, naming what is open."""
    session_id = page.session.session_id
    if page.gaps:
        missing = (f"1-{page.session.sequence} {UNREADABLE}",)
        raise Lacking("a record cannot be read, which may have begun something", code=refusals.HISTORY_UNAVAILABLE, missing=missing)
    for code, wording, is_of in _REASONS:
        found = [each for each in page.items if is_of(each.kind) and not _is_over(each, now)]
        if found:
            raise Lacking(f"{session_id} {wording}: {found[0].kind} {found[0].item_id}", code=code, missing=_named(found))
    if page.truncated:
        raise Lacking(f"{session_id} has more that is open than is looked at", code=INELIGIBLE, missing=("everything that is open",))


def _is_over(each: Unsettled, now: int) -> bool:
    return each.kind == APPROVAL and each.expires_at is not None and each.expires_at <= now


def _named(found: Iterable[Unsettled]) -> tuple[str, ...]:
    return tuple([f"{each.kind} {each.item_id} is not settled" for each in found][:_NAMED_MAX])


_REASONS: Final[tuple[tuple[str, str, Callable[[str], bool]], ...]] = (
    (WAIT_OPEN, "waits for an answer, whose input would go along", lambda kind: kind == WAIT),
    (NOT_IDLE, "has a Run that is not settled", lambda kind: kind == RUN),
    (INELIGIBLE, "has what would be left behind", lambda kind: kind not in (WAIT, RUN)),
)
"""In the order in which they are told of."""
