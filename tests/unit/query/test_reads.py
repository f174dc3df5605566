"""A read that asks for the log's end waits for the table to reach it, whatever the table holds already."""

import asyncio
from types import SimpleNamespace
from typing import Any

from streams.query.reads import Reads


class Table:
    """Holds one event until the end of the log is waited for, then two."""

    def __init__(self) -> None:
        self.events = 1
        self.asked: list[str] = []

    def partition(self, session_id: str) -> int:
        return 0

    async def ready(self, *_: Any) -> None:
        self.asked.append("ready")

    async def at_end(self, *_: Any) -> None:
        self.asked.append("at_end")
        self.events = 2


def page_of(table: Table, at_end: bool) -> int:
    model = SimpleNamespace(partition=table.partition, events=lambda *_, **__: SimpleNamespace(events=("event",) * table.events))
    reads = Reads(model, table)  # type: ignore[arg-type]
    page = asyncio.run(reads.events("ws", "sess", after=0, limit=10, max_bytes=100, wait_s=1, at_end=at_end))
    return len(page.events)


def test_a_read_for_the_logs_end_waits_for_it() -> None:
    table = Table()
    assert page_of(table, at_end=True) == 2
    assert table.asked == ["ready", "at_end"]


def test_any_other_read_answers_what_the_table_holds() -> None:
    table = Table()
    assert page_of(table, at_end=False) == 1
    assert table.asked == ["ready"]
