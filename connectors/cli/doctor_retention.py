"""What `doctor` sees of retention: erasures that are not complete and who is awaited, holders that say nothing, clocks that disagree.

By `sessions.retention` and `sessions.confirmations`; who is awaited, the process that decides erasures is asked.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from connectors.cli.administration import rfc3339
from connectors.cli.console import counted
from connectors.cli.findings import Finding, failed, ok, warning
from connectors.owner.erasure_owners import ErasureOwners
from connectors.owner.messages import ErasureAnswer
from connectors.owner.token import internal_token
from streams.clock import now_us
from streams.errors import BrokerUnavailable, RecordUnreadable, StreamsError
from streams.holders.compaction import compaction_bound_s
from streams.holders.partitions import holders_expected
from streams.log.follower import CompactedFollower
from streams.log.reader import PartitionReader, end_offsets, log_start_offsets
from streams.log.retention import (
    CACHE,
    COMPLETE,
    ERASURE,
    PARTITION,
    SINK,
    Confirmation,
    RetentionRow,
    decode_confirmation,
    decode_retention,
)
from streams.log.topics import Topics
from streams.retention.core import COMPACTION
from streams.settings import Settings

_READ_TIMEOUT_S: Final = 30.0
_ASKED: Final = 3
"""Of the erasures that wait longest."""
_NAMED: Final = 5
_GRACE_S: Final = 60.0
"""A custodian that was killed is back by then."""
_SILENT_S: Final = 300.0
"""The stores of partitions say something every minute."""


class Heard(NamedTuple):
    """The last that a holder said, and when it came, in microseconds by the broker's clock."""

    told: Confirmation
    at: int

    @property
    def row(self) -> dict[str, Any]:
        """As JSON. Times as RFC 3339."""
        told = self.told
        return {
            "holder": told.holder_id, "kind": told.kind, "process": told.process, "enforced_through": told.enforced_through,
            "purged_through": told.purged_through, "leaving": told.leaving, "heard_at": rfc3339(self.at),
        }  # fmt: skip


def erasures(settings: Settings) -> Iterator[Finding]:
    """Raises what reading the topic raises."""
    rows = sorted(_pending(settings), key=lambda row: row.ended_at)
    if not rows:
        yield ok("erasures", "none is under way")
        return
    oldest_s = (now_us() - rows[0].ended_at) / 1e6
    seen = f"{counted(len(rows), 'erasure')} under way, the oldest for {oldest_s:,.0f} s"
    unenforced = [row for row in rows if row.erasure is None or row.erasure.enforced_at is None]
    late = any((now_us() - row.ended_at) / 1e6 > 2 * settings.lease_s + _GRACE_S for row in unenforced)
    awaited = _awaited(settings, rows[:_ASKED])
    if late:
        yield failed("erasures", f"{seen}; not enforced after a lease", "see the custodian's log: it may not reach the keyring")
    elif set(awaited) <= {COMPACTION}:
        seen += f"; awaits {COMPACTION}, up to {compaction_bound_s(settings):,.0f} s" if awaited else ""
        yield ok("erasures", seen)
    else:
        yield warning("erasures", f"{seen}; awaits {_named(awaited)}", "start what is named, or see its log; `erasures show` tells of each")


def holders(settings: Settings) -> Iterator[Finding]:
    """Raises what reading the topic raises."""
    heard, now = heard_of(settings), now_us()
    expected = set(holders_expected(settings.partitions))
    absent = sorted(expected - heard.keys())
    silent = sorted(
        holder
        for holder, last in heard.items()
        if last.told.kind in (PARTITION, SINK) and not last.told.leaving and now - last.at > _SILENT_S * 1e6
    )
    if absent or silent:
        to_do = "start the role that has them; a sink that is gone for good: `session-streams holders remove`"
        yield warning("holders", f"nothing heard lately of {_named([*absent, *silent])}", to_do)
    else:
        live = sum(last.told.kind == CACHE and not last.told.leaving and now - last.at <= settings.lease_s * 1e6 for last in heard.values())
        yield ok("holders", f"{len(heard.keys() & expected)} stores and {live} with secrets in memory confirm what is erased")
    yield from _clocks(settings, [last for last in heard.values() if now - last.at <= _SILENT_S * 1e6])


def _clocks(settings: Settings, lately: Sequence[Heard]) -> Iterator[Finding]:
    apart = {last.told.process: (last.told.told_at - last.at) / 1e6 for last in lately}
    wrong = [f"{process} {by_s:+.0f} s" for process, by_s in sorted(apart.items()) if abs(by_s) > settings.clock_drift_s]
    if wrong:
        yield failed(
            "clocks", f"apart from the broker's: {_named(wrong)}", "synchronise the machines: until then nothing that is over is destroyed"
        )
    elif apart:
        most_s = max(abs(by_s) for by_s in apart.values())
        yield ok("clocks", f"within {most_s:.1f} s of the broker's; {settings.clock_drift_s:g} s are let pass")


def _pending(settings: Settings) -> list[RetentionRow]:
    follower = CompactedFollower(settings, "doctor", Topics(settings.topic_prefix).retention)
    try:
        if not follower.wait_fresh(_READ_TIMEOUT_S):
            raise BrokerUnavailable("reading what is retained: timed out")
        found = []
        for key, value in follower.rows.items():
            if key.startswith(f"{ERASURE}/".encode()):
                try:
                    row = decode_retention(value)
                except RecordUnreadable:
                    continue
                if row.state != COMPLETE:
                    found.append(row)
        return found
    finally:
        follower.close()


def heard_of(settings: Settings) -> dict[str, Heard]:
    """By holder, as far as the topic still has it. Raises `BrokerUnavailable`."""
    place = (Topics(settings.topic_prefix).confirmations, 0)
    start, end = log_start_offsets(settings, [place])[place], end_offsets(settings, [place], committed=False)[place]
    heard: dict[str, Heard] = {}
    with PartitionReader(settings, "doctor.confirmations", {place: start}) as reader:
        while reader.position(*place) < end:
            for record in reader.read(1000, 1.0):
                if record.value is None:
                    continue
                try:
                    told = decode_confirmation(record.value)
                except RecordUnreadable:
                    continue
                heard[told.holder_id] = Heard(told, record.timestamp_ms * 1000)
    return heard


def _awaited(settings: Settings, rows: Sequence[RetentionRow]) -> list[str]:
    """Who is awaited for these; what keeps us from knowing, where that is so."""

    async def ask() -> list[ErasureAnswer | None]:
        owners = ErasureOwners(settings, internal_token(settings.data_dir))
        try:
            return [await owners.erasure(row.workspace_id, row.id) for row in rows]
        finally:
            owners.close()

    try:
        answers = asyncio.run(ask())
    except StreamsError as error:
        return [f"somebody who is not told of ({error.detail})"]
    return sorted({each.holder for answer in answers if answer is not None for each in answer.awaited})


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
