"""Where a session's content lies, by expiry day: enough to say what can no longer be read, without asking a projection.

For each expiry day of any content, the first and the last position that has some; the same for content that was omitted. The
latest day stands in the header, which every command writes anyway; a day that is over moves to the history. What
is erased is erased up to a position. A fork brings along where the content of its ancestors lies, as far as it has it:

    sess_<32 hex>=<day | omitted | erased>:<first>-<last>[,...][;sess_...=...]     the oldest ancestor first

Ranges tell between which positions content is gone, not that every position between them had some. A session's content has one
subject, the session's, so that positions by subject are those of all content. (Design 02, "Recovery".)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from streams.session.days import FIRST_DAY, LAST_DAY, day_of, written
from streams.session.events import OMITTED, SEALED, Content
from streams.session.items import HEADER, HISTORY, Changes, HistoryState, LineageState, SessionState
from streams.session.outcomes import Unavailable
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED, CONTENT_OMITTED

_OMITTED: Final = "omitted"
_ERASED: Final = "erased"

Span = tuple[int, int]
"""First and last position."""


def place_of(content: Content) -> str | None:
    """Under what the positions of this content are counted: its expiry day, or that it was omitted; None: there is none."""
    if content.state == SEALED and content.key_reference is not None:
        return content.key_reference.expiry_day
    return _OMITTED if content.state == OMITTED else None


def noted(header: SessionState, history: HistoryState, spans: Mapping[str, Span]) -> Changes:
    """Header and, where it changes, history once content lies at these positions too (place -> span)."""
    days = history.days
    for place, (first, last) in spans.items():
        if place == _OMITTED:
            header = structs.replace(header, omitted_first=header.omitted_first or first, omitted_last=last)
        elif place == header.content_day:
            header = structs.replace(header, content_last=max(header.content_last, last))
        elif header.content_day is None:
            header = structs.replace(header, content_day=place, content_first=first, content_last=last)
        elif place > header.content_day:
            days = _with(days, header.content_day, (header.content_first, header.content_last))
            header = structs.replace(header, content_day=place, content_first=first, content_last=last)
        else:
            # Around midnight gateways may differ about the day.
            days = _with(days, place, (first, last))
    if days == history.days:
        return ((HEADER, header),)
    return ((HEADER, header), (HISTORY, structs.replace(history, days=days)))


def _with(days: tuple[str, ...], day: str, span: Span) -> tuple[str, ...]:
    known = _parsed_days(days)
    before = known.get(day, span)
    known[day] = (min(before[0], span[0]), max(before[1], span[1]))
    return tuple([f"{each}:{first}-{last}" for each, (first, last) in sorted(known.items())])


def _parsed_days(entries: tuple[str, ...] | list[str]) -> dict[str, Span]:
    found = {}
    for entry in entries:
        place, _, span = entry.partition(":")
        first, _, last = span.partition("-")
        found[place] = (int(first), int(last))
    return found


def _spans(header: SessionState, history: HistoryState) -> dict[str, Span]:
    spans = _parsed_days(history.days)
    if header.content_day is not None:
        spans[header.content_day] = (header.content_first, header.content_last)
    if header.omitted_first:
        spans[_OMITTED] = (header.omitted_first, header.omitted_last)
    return spans


def unreadable(header: SessionState, history: HistoryState, now: int, *, after: int = 0, through: int | None = None) -> list[Unavailable]:
    """Of the session's own positions above `after`, up to `through`. `now` in microseconds since the epoch."""
    last = header.sequence if through is None else through
    today = _today(now)
    found = []
    for place, (first, end) in _spans(header, history).items():
        low, high = max(first, after + 1), min(end, last)
        if low > high:
            continue
        if low <= history.erased_through:
            found.append(Unavailable(low, min(high, history.erased_through), CONTENT_ERASED))
            low = history.erased_through + 1
        if low <= high:
            reason = _reason(place, today)
            if reason is not None:
                found.append(Unavailable(low, high, reason))
    return sorted(found, key=lambda each: (each.first, each.last))


def unreadable_ancestors(lineage: LineageState | None, now: int) -> list[Unavailable]:
    """Of what a fork has from its ancestors, the oldest first."""
    if lineage is None:
        return []
    today = _today(now)
    found = []
    for session_id, spans in _inherited(lineage.inherited):
        for place, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
            reason = CONTENT_ERASED if lineage.erased else _reason(place, today)
            if reason is not None:
                found.append(Unavailable(first, last, reason, session_id))
    return found


def inherited_by_fork(header: SessionState, history: HistoryState, lineage: LineageState | None, through: int) -> str:
    """What a fork at this position is told of where content lies: its ancestors', and the session's own."""
    erased, known = history.erased_through, _spans(header, history)
    spans = {place: (max(first, erased + 1), last) for place, (first, last) in known.items() if last > erased}
    gone = [(first, min(last, erased)) for first, last in known.values() if first <= erased]
    if gone:
        spans[_ERASED] = (min(first for first, _ in gone), max(last for _, last in gone))
    own = [
        f"{place}:{first}-{min(last, through)}"
        for place, (first, last) in sorted(spans.items(), key=lambda item: item[1])
        if first <= through
    ]
    parts = [] if lineage is None or not lineage.inherited else [_erased(lineage.inherited) if lineage.erased else lineage.inherited]
    return ";".join([*parts, *([f"{header.session_id}={','.join(own)}"] if own else [])])


def _erased(inherited: str) -> str:
    return ";".join(
        f"{session_id}={_ERASED}:{min(span[0] for span in spans.values())}-{max(span[1] for span in spans.values())}"
        for session_id, spans in _inherited(inherited)
    )


def _inherited(text: str) -> Iterator[tuple[str, dict[str, Span]]]:
    for part in text.split(";") if text else ():
        session_id, _, entries = part.partition("=")
        yield session_id, _parsed_days(entries.split(","))


def _reason(place: str, today: str) -> str | None:
    """Why what lies there cannot be read; None: it can, to the end of the day."""
    if place == _OMITTED:
        return CONTENT_OMITTED
    if place == _ERASED:
        return CONTENT_ERASED
    return CONTENT_EXPIRED if place < today else None


def _today(now: int) -> str:
    """The nearest day that can be written."""
    return written(min(max(day_of(now), FIRST_DAY), LAST_DAY))


def worded(ranges: Sequence[Unavailable]) -> tuple[str, ...]:
    """As a refusal names them: `3-7 content.expired`, of an ancestor with its id in front."""
    return tuple([f"{f'{each.session_id} ' if each.session_id else ''}{each.first}-{each.last} {each.reason}" for each in ranges])
