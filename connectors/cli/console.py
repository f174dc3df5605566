"""What a person or a script sees: text or JSON on stdout, progress and remarks on stderr, and the exit codes.

0  done                                    4  not reachable or not ready: the same command again, later
1  refused, not found, or a difference     5  a process could not go on; its log says why
2  the command line is wrong             130  stopped with Ctrl-C
3  the installation does not fit: settings, topics, Java, keys; the message says what to do
6  a worker: another one has the Run       7  a worker: nobody can tell whether a provider acted
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from streams.errors import Corrupt, Fatal, Fenced, Misconfigured, Retriable, StreamsError

OK: Final = 0
REFUSED: Final = 1
MISCONFIGURED: Final = 3
UNAVAILABLE: Final = 4
FATAL: Final = 5
FENCED: Final = 6
INDETERMINATE: Final = 7
INTERRUPTED: Final = 130

_PLAIN_EVERY_S: Final = 2.0
_GAP: Final = "  "
_CONTINUED: Final = "    "


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


def counted(number: int, singular: str) -> str:
    """`1 file`, `2 files`, `0 files`."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """`text` with whatever a terminal would obey written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, padded: bool = False) -> None:
    """Padded columns on a terminal, or where `padded`; elsewhere tab-separated lines, so that other programs can cut them."""
    table = [[printable(cell) for cell in row] for row in (columns, *rows)]
    if sys.stdout.isatty():
        lines = padded_lines(table, shutil.get_terminal_size().columns)
    elif padded:
        lines = padded_lines(table, None)
    else:
        lines = ["\t".join(row) for row in table]
    print("\n".join(lines))


def padded_lines(table: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lines of a table whose rows have equal length. Columns that do not fit in `width` go on in a line below, indented:
    nothing is cut, and what is copied from a cell is whole."""
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    last_of_line, used = set(), 0
    for index, wide in enumerate(widths):
        if index and width is not None and used + len(_GAP) + wide > width:
            last_of_line.add(index - 1)
            used = len(_CONTINUED) + wide
        else:
            used += wide + (len(_GAP) if index else 0)
    lines = []
    for row in table:
        line = ""
        for index, cell in enumerate(row):
            line += cell + " " * (widths[index] - cell_len(cell))
            if index in last_of_line:
                lines.append(line.rstrip())
                line = _CONTINUED
            else:
                line += _GAP
        lines.append(line.rstrip())
    return lines


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
            bars.tasks[task].total = total  # `update` takes None for "as it was"
            bars.update(task, completed=done, detail=escape(detail))

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
