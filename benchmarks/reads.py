"""Point reads over HTTP, 16 callers: a session's row, and one page of a transcript with its content opened.

Both are also read from their owner directly, without a gateway: what one process of the projector serves. Its pages are
sealed; opening them is the gateway's.
"""

import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks import traffic
from benchmarks.bench import Bench, every_look, places
from benchmarks.httpload import Task
from benchmarks.results import Result, percentile
from benchmarks.serving import Installation, Loaded, content_chars_of, running
from connectors.owner.messages import EventsQuestion, SessionQuestion
from connectors.owner.token import internal_token
from streams.log.owners import GroupOwners
from streams.log.partitioner import partition_of
from streams.log.position import Position
from streams.log.reader import end_offsets
from streams.log.topics import Topics

_CALLERS: Final = 16
_PAGE: Final = 20
"""Events of a page, which are all that its session holds beside its creation."""
_TRANSCRIPTS: Final = 100
_ASKED: Final = 10_000
"""Different rows asked for at most; drawn from all of them."""
_QUESTIONS: Final = 1000
_PAGE_BYTES: Final = 4 << 20
_DEADLINE_S: Final = 600.0
_BEHIND: Final = 503


def measure(bench: Bench) -> Iterator[Result]:
    """point_read_*_requests_per_s for each number of rows."""
    for rows in bench.options.rows:
        with running(bench) as installation:
            yield from _measured(bench, installation, rows)


def _measured(bench: Bench, installation: Installation, rows: int) -> Iterator[Result]:
    sessions = _filled(installation, rows)
    bench.say(f"point reads: waiting until {rows} rows are in the tables")
    catch_up(installation, sessions)
    transcripts = sessions[:_TRANSCRIPTS]
    chars = content_chars_of(bench.options.event_bytes)
    written = Task(
        **installation.gateway(), kind="batch", connections=4, sessions=transcripts, content_chars=chars, lines=_PAGE,
        requests=len(transcripts),
    )  # fmt: skip
    installation.load(written)
    catch_up(installation, sessions)
    asked = Random(1).sample(sessions, min(_ASKED, len(sessions)))
    at = "" if rows <= 1000 else f"_at_{rows}_rows"
    yield _result(f"point_read_session_requests_per_s{at}", installation.run("session", _CALLERS, asked), rows)
    page = installation.run("page", _CALLERS, transcripts, lines=_PAGE)
    yield _result(f"point_read_page_requests_per_s{at}", page, rows, events_a_page=_PAGE)
    workspace_id = installation.up.workspace_id
    rows_asked: list[Struct] = [SessionQuestion(workspace_id, session_id, None, 5.0) for session_id in asked[:_QUESTIONS]]
    yield _result(f"owner_read_session_requests_per_s{at}", _of_owner(installation, "session", rows_asked), rows)
    pages: list[Struct] = [
        EventsQuestion(workspace_id, session_id, after=0, limit=_PAGE, max_bytes=_PAGE_BYTES, follow_s=0.0, position=None, wait_s=5.0)
        for session_id in transcripts
    ]
    yield _result(f"owner_read_page_requests_per_s{at}", _of_owner(installation, "events", pages), rows, events_a_page=_PAGE)


def _result(name: str, loaded: Loaded, rows: int, **details: float) -> Result:
    seconds = loaded.outcome.seconds
    times = {"p50_ms": percentile(seconds, 50) * 1000, "p99_ms": percentile(seconds, 99) * 1000}
    return Result(name=name, value=loaded.per_s, unit="requests/s", details={"rows": rows, **details, **times, **loaded.cores})


def _filled(installation: Installation, count: int) -> list[str]:
    """Creates `count` sessions straight through Kafka."""
    settings = installation.settings
    sessions = traffic.new_sessions(count)
    topic, commands = Topics(settings.topic_prefix).commands, traffic.sessions_of(sessions, traffic.creating(installation.up.workspace_id))
    traffic.produce(traffic.sender(settings), topic, settings.partitions, commands)
    return sessions


def catch_up(installation: Installation, sessions: list[str]) -> None:
    """Until the tables hold what the last command of each partition led to."""
    settings = installation.settings
    topic = Topics(settings.topic_prefix).commands
    ends = end_offsets(settings, places(settings, topic), committed=False)
    in_partition = {partition_of(session_id.encode(), settings.partitions): session_id for session_id in sessions}
    for partition, session_id in in_partition.items():
        request = urllib.request.Request(
            f"{installation.up.gateway}/v1/sessions/{session_id}",
            headers={
                "authorization": f"Bearer {installation.up.api_key}",
                "session-streams-position": str(Position(topic, partition, ends[(topic, partition)] - 1)),
            },
        )
        for _ in every_look(_DEADLINE_S, "catching up"):
            try:
                urllib.request.urlopen(request, timeout=30).close()
                break
            except urllib.error.HTTPError as error:
                if error.code != _BEHIND:
                    raise


def _of_owner(installation: Installation, path: str, questions: list[Struct]) -> Loaded:
    """Asks the projector as a gateway does."""
    settings, options = installation.settings, installation.options
    owners = GroupOwners(settings, "projector", Topics(settings.topic_prefix).events).owners()
    host, _, port = next(iter(owners.values())).rpartition(":")
    task = Task(
        kind="owner", host=host, port=int(port), key=internal_token(settings.data_dir), connections=_CALLERS,
        question=path, questions=[b64encode(msgspec.msgpack.encode(question)).decode() for question in questions],
        warm_s=options.warm_s, load_s=options.load_s,
    )  # fmt: skip
    return installation.load(task)
