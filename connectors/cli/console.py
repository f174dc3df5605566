"""What a person or a script sees: text or JSON on stdout, progress and remarks on stderr, and the exit codes.

0  done                                    4  not reachable or not ready: the same command again, later
1  refused, not found, or a difference     5  a process could not go on; its log says why
2  the command line is wrong             130  stopped with Ctrl-C
3  the installation does not fit: settings, topics, Java, keys; the message says what to do
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from streams.errors import Corrupt, Fatal, Fenced, Misconfigured, Retriable, StreamsError

OK: Final = 0
REFUSED: Final = 1
MISCONFIGURED: Final = 3
UNAVAILABLE: Final = 4
FATAL: Final = 5
INTERRUPTED: Final = 130

_PLAIN_EVERY_S: Final = 2.0


def exit_code(error: StreamsError) -> int:
    match error:
        case Retriable():
            return UNAVAILABLE
        case Misconfigured():
            return MISCONFIGURED
        case Fatal() | Fenced() | Corrupt():
            return FATAL
        case _:
            return REFUSED


def remark(line: str) -> None:
    """One line for a person, on stderr."""
    print(line, file=sys.stderr, flush=True)


def emit_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """A drawn table on a terminal; tab-separated lines elsewhere, so that other programs can cut them."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            print("\t".join(row))
        return
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        # The first names the row and is there to be copied: it is never cut.
        table.add_column(escape(column), no_wrap=index == 0, overflow="fold", min_width=_width(rows, index))
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def _width(rows: Sequence[Sequence[str]], index: int) -> int | None:
    return max((len(row[0]) for row in rows), default=None) if index == 0 else None


class Reporter(Protocol):
    """Takes how far a piece of work is. `total` may grow while it runs, or be None while nobody knows."""

    def __call__(self, done: int, total: int | None, detail: str = "") -> None: ...


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="cyan")


@contextmanager
def progress(what: str, unit: str, *, quiet: bool = False) -> Iterator[Reporter]:
    """A bar with rate and ETA where stderr is a terminal, a line every two seconds elsewhere, nothing where `quiet`."""
    if quiet:
        yield lambda done, total, detail="": None
    elif sys.stderr.isatty():
        with _bar(what, unit) as report:
            yield report
    else:
        yield _plain(what, unit)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Reporter]:
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit), _RateColumn(),
        TimeRemainingColumn(compact=True), TextColumn("{task.fields[detail]}", style="dim"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None, detail="")

        def report(done: int, total: int | None, detail: str = "") -> None:
            bars.update(task, completed=done, total=total, detail=escape(detail))

        yield report


def _plain(what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> Reporter:
    started_s = clock()
    next_s = started_s + _PLAIN_EVERY_S

    def report(done: int, total: int | None, detail: str = "") -> None:
        nonlocal next_s
        now_s = clock()
        finished = total is not None and done >= total
        if now_s < next_s and not finished:
            return
        next_s = now_s + _PLAIN_EVERY_S
        rate = done / max(now_s - started_s, 1e-6)
        left = f", {(total - done) / rate:.0f} s left" if total is not None and rate > 0 and not finished else ""
        remark(f"{what}: {done:,}{'' if total is None else f' of {total:,}'} {unit}, {rate:,.0f}/s{left}{f' ({detail})' if detail else ''}")

    return report
