"""`demo`: the whole show in a temporary folder, from an empty cluster to events read back; of it stays what is in `build/`.

1 a local Kafka and all roles      5 a session's graph, written and drawn
2 the samples go in, and again     6 a session exported, and its export verified
3 the sessions with their counts   7 a worker dies in the middle of its Run, another goes on
4 events, and one of them opened   8 the throughput reached; what a tap counted of it
9 a customer is erased, and the signed receipts are verified
10 a session of that customer leaves as one signed file, which a stranger verifies: it says what is not in it
"""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from connectors.cli import exporting, graphing, reading
from connectors.cli.console import OK, REFUSED, progress, remark
from connectors.cli.demo_bundle import show_bundle
from connectors.cli.demo_erasure import QUICK, QUICK_KAFKA, show_erasure
from connectors.cli.demo_worker import show_recovery
from connectors.cli.found import Gateway, Up
from connectors.cli.ingesting import IngestOptions, ingest, tell
from connectors.cli.interrupts import Stopped, raising
from connectors.cli.local import LocalInstallation, LocalOptions
from connectors.cli.taps import show_tap, wait_for_tap
from connectors.sources.samples import FOLDER as SAMPLES
from session_streams import AsyncClient, Client, Event
from session_streams.export import Verdict
from streams.settings import Settings

_TAIL_EVENTS: Final = 12
_WRITERS: Final = 4
_BATCH_EVENTS: Final = 500
_BATCHES: Final = 60
_CONTENT_BYTES: Final = 1000
_TAP_TIMEOUT_S: Final = 60.0
_GRAPH: Final = Path("build") / "demo-graph.svg"
_EXPORT: Final = Path("build") / "demo-session.ndjson"


def run_demo(settings: Settings, *, taps: bool = False) -> int:
    """Returns 0 where everything held, 1 where a count did not, once nothing runs any more. Raises StreamsError."""
    folder = Path(tempfile.mkdtemp(prefix="session-streams-demo-"))
    quick = replace(settings, data_dir=folder, topic_prefix="", **QUICK)
    options = LocalOptions(settings=quick, port=0, taps=taps, kafka_settings=QUICK_KAFKA)
    installation = LocalInstallation(options, _step)
    with raising(installation.kill):
        try:
            started_s = time.monotonic()
            up = installation.start()
            _step(f"everything answers after {time.monotonic() - started_s:.1f} s: gateway {up.gateway}, broker {up.broker}")
            return _show(up, installation.settings)
        except Stopped:
            remark("stopping (again for at once)")
            raise KeyboardInterrupt from None
        finally:
            installation.stop()
            shutil.rmtree(folder, ignore_errors=True)
            _step("everything has stopped, and the temporary folder is gone")


def _show(up: Up, settings: Settings) -> int:
    _head("Sample transcripts and trajectories go in")
    options = IngestOptions(paths=[str(SAMPLES)], gateway=Gateway(up.gateway, up.api_key), check=True)
    first = ingest(options)
    tell(first, as_json=False)
    _head("The same again: nothing is added")
    second = ingest(replace(options, check=False), quiet=True)
    tell(second, as_json=False)
    with Client(up.gateway, up.api_key) as client:
        _head("Sessions")
        reading.show_sessions(client, limit=50, as_json=False, padded=True)
        session = client.session(max(first.report.session_ids, key=lambda session_id: client.session(session_id).sequence))
        _head(f"The last events of {session.session_id}")
        reading.show_tail(client, session, count=_TAIL_EVENTS, follow=False, as_json=False)
        _head("One event read back and opened (its content lies sealed in Kafka)")
        _show_event(client.events(session.session_id))
        _head(f"Its execution graph, as Mermaid; drawn in {_GRAPH}")
        graphing.show_in_demo(client, session.session_id, _GRAPH)
        _head(f"The session exported to {_EXPORT}, and verified with nothing but that file")
        verdict = _export(client, session.session_id)
        print(verdict)
    _head("A worker dies between an action and its receipt; another one goes on with the Run")
    recovered = show_recovery(up, settings, _step)
    _head(f"Throughput: {_WRITERS} writers, batches of {_BATCH_EVENTS} events of {_CONTENT_BYTES} bytes, over HTTP")
    events, seconds = asyncio.run(_load(up))
    print(f"{events:,} events accepted, exactly once, in {seconds:.1f} s: {events / seconds:,.0f} events/s")
    if up.tap is not None:
        _head(f"What the tap counted ({up.tap})")
        show_tap(wait_for_tap(up.tap, events=events + first.report.events, timeout_s=_TAP_TIMEOUT_S), as_json=False, padded=True)
    _head("A customer is erased: nothing of what was sealed opens anywhere any more, and what is left says why")
    with Client(up.gateway, up.api_key) as client:
        erased = show_erasure(client, settings, _step)
        _head("A session of that customer leaves as one signed file, a Session Bundle: a stranger checks it, and reads what is not in it")
        bundled = erased is not None and show_bundle(client, erased, _step)
    added = first.report.events > 0 and second.report.events == 0
    held = first.report.ok and second.report.ok and added and verdict.ok and recovered and bundled
    return OK if held else REFUSED


def _export(client: Client, session_id: str) -> Verdict:
    _EXPORT.parent.mkdir(exist_ok=True)
    exporting.export_to_file(client, session_id, _EXPORT, quiet=True)
    return exporting.check_file(str(_EXPORT))


def _show_event(events: Iterable[Event]) -> None:
    shown = next((event for event in events if event.type == "message.appended" and event.content is not None), None)
    if shown is not None:
        print(json.dumps(shown.raw, ensure_ascii=False, indent=2)[:2500])


async def _load(up: Up) -> tuple[int, float]:
    """The number of events acknowledged, and the seconds from the first request to the last answer."""
    total, done = _BATCHES * _BATCH_EVENTS, 0
    event = json.dumps(
        {"type": "message.appended", "attributes": {"role": "assistant"}, "content": {"text": "x" * _CONTENT_BYTES}}
    ).encode()
    batch = [event] * _BATCH_EVENTS
    with progress("load", "events") as report:
        async with AsyncClient(up.gateway, up.api_key) as client:
            sessions = [(await client.create_session()).session_id for _ in range(_WRITERS)]

            async def write(session_id: str) -> None:
                nonlocal done
                for _ in range(_BATCHES // _WRITERS):
                    appended = await client.append_many(session_id, batch)
                    done += appended.last_sequence - appended.first_sequence + 1
                    report(done, total)

            started_s = time.monotonic()
            await asyncio.gather(*(write(session_id) for session_id in sessions))
            return done, time.monotonic() - started_s


def _head(line: str) -> None:
    print(f"\n== {line}", flush=True)


def _step(line: str) -> None:
    sys.stdout.flush()
    remark(f"-- {line}")
