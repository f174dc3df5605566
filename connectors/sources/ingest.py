"""Ingest: files of recorded sessions into the log, several at once, each in order.

    report = await run_ingest(["recordings/"], transport, subject=None, follow=False, check=True)

Rules upheld here: a file that cannot be taken never stops the others; a second run adds nothing; with `follow`, files
that grow and files that appear are taken in until `stop` is set or the task is cancelled.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from connectors.sources.check import CheckReport, check_session
from connectors.sources.files import STDIN, PlannedSession, Planner, SourceFile, SourceUnusable, discover
from connectors.sources.records import SourceChanged
from connectors.sources.session_import import LETTERS_TOLD, SessionImport
from connectors.sources.transport import Transport
from streams.errors import NotPermitted, Retriable, StreamsError

CONCURRENT_SESSIONS = 4
"""One session is sequential by nature; several keep the other side busy."""


class Failure(Struct, frozen=True):
    """What went wrong with a file (empty where it is none in particular). `reason` never holds content."""

    file: str
    reason: str


class Progress(Struct, frozen=True):
    """Totals so far. `sessions_total` is what the files at hand hold; bytes are unpacked."""

    sessions_done: int
    sessions_total: int
    records: int
    events: int
    bytes: int
    file: str


class IngestReport(Struct):
    """What a run did. `records` and `events` count what was added now; `events` without the authority's own.
    `letter_places` are the first `dead_letters`, each `FILE:LINE: reason`."""

    files: int = 0
    sessions: int = 0
    sessions_unchanged: int = 0
    records: int = 0
    events: int = 0
    bytes: int = 0
    dead_letters: int = 0
    letter_places: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    session_ids: list[str] = field(default_factory=list)
    check: CheckReport | None = None

    @property
    def ok(self) -> bool:
        """Whether every file went in, and the check, if there was one, found no difference."""
        return not self.failures and (self.check is None or self.check.ok)


async def run_ingest(
    paths: Sequence[str | Path],
    transport: Transport,
    *,
    subject: str | None = None,
    follow: bool = False,
    check: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    stop: asyncio.Event | None = None,
    patience_s: float = 120.0,
    poll_s: float = 0.5,
) -> IngestReport:
    """Takes in every source among `paths` (files, folders, "-" for standard input).

    Args:
        subject: outside id of the person whom transcripts concern; trajectories name theirs themselves.
        check: afterwards every session is read back and compared with its source.
        stop: ends following; without `follow` it has no effect.
        patience_s: how long one call is repeated while the other side is away.

    Raises NotPermitted where the key may not import at all.
    """
    run = _Run(paths, transport, subject, on_progress, patience_s)
    try:
        await run.take_in(final=not follow)
        if follow:
            await run.follow(stop or asyncio.Event(), poll_s)
    finally:
        run.release()
    if check:
        await run.check()
    return run.report()


class _Run:
    """One call of `run_ingest`."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        transport: Transport,
        subject: str | None,
        on_progress: Callable[[Progress], None] | None,
        patience_s: float,
    ) -> None:
        self._paths = paths
        self._transport = transport
        self._subject = subject
        self._on_progress = on_progress
        self._patience_s = patience_s
        self._files: list[SourceFile] = []
        self._problems: list[tuple[SourceFile, str]] = []
        self._ignored: list[str] = []
        self._imports: dict[str, SessionImport] = {}
        self._done: set[str] = set()
        self._failures: dict[str, Failure] = {}
        self._late: dict[str, Failure] = {}
        self._sizes: dict[SourceFile, int] = {}
        self._told: dict[SessionImport, tuple[int, int, int]] = {}
        self._totals = (0, 0, 0)
        self._check: CheckReport | None = None
        self._slots = asyncio.Semaphore(CONCURRENT_SESSIONS)

    async def take_in(self, *, final: bool) -> None:
        self._plan()
        await self._each(list(self._imports), final=final)

    async def follow(self, stop: asyncio.Event, poll_s: float) -> None:
        """Looks every `poll_s` for what came. A session is left alone once it failed, save where time may help."""
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), poll_s)
            self._plan()
            await self._each([key for key in self._imports if key not in self._failures and self._has_more(key)], final=False)

    def release(self) -> None:
        for work in self._imports.values():
            work.release()

    # Planning

    def _plan(self) -> None:
        """Looks at the folders; plans anew only where files appeared, or grew that could not be taken before."""
        try:
            files = self._files if self._files and not self._folders() else list(discover(self._paths))
        except SourceUnusable as error:
            self._failures["paths"] = Failure("", str(error))
            return
        if files == self._files and not any(self._grown(file) for file, _ in self._problems):
            return
        self._files, self._ignored = files, []
        planner = Planner(self._subject)
        for plan in planner.plan(files):
            self._adopt(plan)
        self._ignored += [str(file) for file in planner.ignored]
        self._problems = planner.problems
        for file, _ in self._problems:
            self._grown(file)

    def _folders(self) -> bool:
        return any(str(path) != STDIN and Path(path).is_dir() for path in self._paths)

    def _adopt(self, plan: PlannedSession) -> None:
        known = self._imports.get(plan.key)
        if known is None:
            work = SessionImport(self._transport, plan, patience_s=self._patience_s, on_advance=self._advanced)
            self._imports[plan.key] = work
            # Looked at before it is read, so that what comes meanwhile shows as growth.
            self._grown(plan.file)
        elif known.plan.file != plan.file:
            self._ignored.append(f"{plan.file} (the same source as {known.plan.file})")
        elif known.plan.agents != plan.agents:
            known.forget()
            known.plan = plan
            self._done.discard(plan.key)

    def _has_more(self, key: str) -> bool:
        """Whether the files have grown, or were not taken in to their end because the other side was away."""
        plan = self._imports[key].plan
        files = [] if plan.trajectory is not None else [plan.file, *(file for _, file in plan.agents)]
        grown = [self._grown(file) for file in files]
        return any(grown) or key not in self._done

    def _grown(self, file: SourceFile) -> bool:
        """Whether the size is another than when this was asked last."""
        before, now = self._sizes.get(file), file.size()
        self._sizes[file] = now
        return now != before

    # Working

    async def _each(self, keys: list[str], *, final: bool) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for key in keys:
                    group.create_task(self._one(key, final=final))
        except* NotPermitted as errors:
            refused = errors
        else:
            return
        raise _first(refused)

    async def _one(self, key: str, *, final: bool) -> None:
        work = self._imports[key]
        async with self._slots:
            self._done.discard(key)
            self._late.pop(key, None)
            try:
                await work.catch_up(final=final)
            except NotPermitted:
                raise
            except Retriable as error:
                # Time may help: with `follow` it is tried again.
                work.forget()
                self._late[key] = _failure(work, error)
                return
            except (SourceUnusable, SourceChanged, StreamsError) as error:
                self._failures[key] = _failure(work, error)
            if final:
                work.release()
            self._done.add(key)
            self._advanced(work)

    def _advanced(self, work: SessionImport) -> None:
        before = self._told.get(work, (0, 0, 0))
        now = (work.records_added, work.events_added, max(work.bytes_read, before[2]))
        self._told[work] = now
        records, events, size = (total + new - old for total, new, old in zip(self._totals, now, before, strict=True))
        self._totals = (records, events, size)
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    sessions_done=len(self._done),
                    sessions_total=len(self._imports),
                    records=records,
                    events=events,
                    bytes=size,
                    file=str(work.plan.file),
                )
            )

    async def check(self) -> None:
        self._check = CheckReport()
        for key, work in self._imports.items():
            if self._went_in(key) and work.session_id is not None:
                try:
                    await check_session(self._transport, work.plan, work.session_id, self._check, patience_s=self._patience_s)
                except (SourceUnusable, StreamsError) as error:
                    self._failures[key] = _failure(work, error)

    def _went_in(self, key: str) -> bool:
        return key in self._done and key not in self._failures and not self._imports[key].unreadable

    def report(self) -> IngestReport:
        done = [work for key, work in self._imports.items() if key in self._done]
        # A followed file may still become readable, so this is no failure before the end.
        unreadable = [Failure(str(work.plan.file), "no line of it is a record") for work in done if work.unreadable]
        records, events, size = self._totals
        return IngestReport(
            files=len(self._files),
            sessions=len(done),
            sessions_unchanged=sum(1 for key, work in self._imports.items() if self._went_in(key) and work.records_added == 0),
            records=records,
            events=events,
            bytes=size,
            dead_letters=sum(work.dead_letters for work in done),
            letter_places=[place for work in done for place in work.letter_places][:LETTERS_TOLD],
            ignored=self._ignored,
            failures=[
                *self._failures.values(),
                *self._late.values(),
                *(Failure(str(file), reason) for file, reason in self._problems),
                *unreadable,
            ],
            session_ids=[work.session_id for work in done if work.session_id is not None],
            check=self._check,
        )


def _failure(work: SessionImport, error: Exception) -> Failure:
    reason = f"{error.code}: {error.detail}" if isinstance(error, StreamsError) else str(error)
    return Failure(str(work.plan.file), reason)


def _first(group: BaseExceptionGroup[NotPermitted]) -> NotPermitted:
    """One of many refusals of the same kind: they all say the same."""
    while True:
        error = group.exceptions[0]
        if isinstance(error, NotPermitted):
            return error
        group = error
