"""`ingest`: runs an import with progress, and tells what it did."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec import Struct, structs

from connectors.cli.console import counted, emit_json, printable, progress, remark
from connectors.cli.found import Gateway
from connectors.sources.check import CheckReport
from connectors.sources.ingest import IngestReport, Progress, run_ingest
from connectors.sources.rest import RestTransport
from connectors.sources.transport import Transport
from streams.settings import Settings


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """`direct`: the cluster to write commands to, past the gateway, with the key of `gateway`."""

    paths: Sequence[str]
    gateway: Gateway
    direct: Settings | None = None
    subject: str | None = None
    follow: bool = False
    check: bool = False


class IngestSummary(Struct, frozen=True, kw_only=True):
    """A report and how long it took."""

    report: IngestReport
    seconds: float

    @property
    def events_per_s(self) -> float:
        return self.report.events / max(self.seconds, 1e-6)


def ingest(options: IngestOptions, *, quiet: bool = False) -> IngestSummary:
    """Raises StreamsError where the import cannot be made at all, KeyboardInterrupt where it was stopped."""
    try:
        return asyncio.run(_ingest(options, quiet))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _ingest(options: IngestOptions, quiet: bool) -> IngestSummary:
    started_s = time.monotonic()
    with progress("ingest", "sessions", quiet=quiet) as report:

        def told(now: Progress) -> None:
            report(now.sessions_done, now.sessions_total, f"{now.events:,} events")

        async with _transport(options) as transport:
            made = await run_ingest(
                options.paths,
                transport,
                subject=options.subject,
                follow=options.follow,
                check=options.check,
                on_progress=told,
                stop=_stopped_by_interrupt(follow=options.follow),
            )
    return IngestSummary(report=made, seconds=time.monotonic() - started_s)


@asynccontextmanager
async def _transport(options: IngestOptions) -> AsyncIterator[Transport]:
    if options.direct is None:
        async with RestTransport.connect(options.gateway.url, options.gateway.api_key) as transport:
            yield transport
    else:
        # Brings Kafka's client and the keyring along, which an import over REST does not need.
        from connectors.sources.direct import direct_transport

        async with direct_transport(options.direct, options.gateway.api_key) as direct:
            yield direct


def _stopped_by_interrupt(*, follow: bool) -> asyncio.Event:
    """Following ends with the first Ctrl-C, in order and with a report; anything else, and the second one, is cut off."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def interrupted() -> None:
        if follow and not stop.is_set():
            remark("finishing what is under way (again for at once)")
            stop.set()
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted)
    return stop


def tell(summary: IngestSummary, *, as_json: bool) -> None:
    """The report: one JSON object, or lines for a person."""
    report = summary.report
    if as_json:
        emit_json(
            {
                **structs.asdict(report),
                "ok": report.ok,
                "seconds": round(summary.seconds, 3),
                "events_per_s": round(summary.events_per_s, 1),
            }
        )
        return
    unchanged = f" ({report.sessions_unchanged:,} unchanged)" if report.sessions_unchanged else ""
    print(
        f"{counted(report.files, 'file')}, {counted(report.sessions, 'session')}{unchanged}: "
        f"{counted(report.records, 'record')} became {counted(report.events, 'event')} in {summary.seconds:.1f} s "
        f"({summary.events_per_s:,.0f} events/s), {counted(report.dead_letters, 'dead letter')}",
        flush=True,
    )
    for place in report.letter_places:
        remark(f"dead letter: {printable(place)}")
    if report.dead_letters > len(report.letter_places):
        remark(f"… and {report.dead_letters - len(report.letter_places):,} more")
    for file in report.ignored:
        print(f"ignored: {printable(file)}")
    for failure in report.failures:
        print(printable(": ".join(part for part in ("failed", failure.file, failure.reason) if part)))
    if report.check is not None:
        _tell_check(report.check)


def _tell_check(check: CheckReport) -> None:
    if check.sessions == 0 and check.ok:
        print("nothing to check")
        return
    found = "no difference" if check.ok else counted(check.different, "difference")
    print(f"checked {counted(check.sessions, 'session')} against {'its source' if check.sessions == 1 else 'their sources'}: {found}")
    for name, count in sorted(check.counts.items()):
        print(f"  {name}: {count:,}")
    for difference in check.differences:
        print(f"  difference: {difference}")
