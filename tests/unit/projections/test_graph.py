"""The table of graphs: what it makes of records that do not fit, what a restore refuses, and how its reads answer."""

import pytest
from msgspec import structs

from streams.errors import Invalid, Misconfigured, NotFound, StoreUnusable
from streams.graph.items import Gap, Graph
from streams.projections.graph import encoding
from streams.projections.graph.encoding import FOLD_VERSION, Progress, encode_progress, progress_key
from streams.projections.graph.handler import GraphProjection
from streams.projections.graph.serving import commands_in
from streams.query.graphs import TOO_LARGE
from streams.settings import Settings
from streams.store.memory import MemoryStore
from tests.support.examples import made_up_id
from tests.support.graphs import GraphStore, folded, graph_of, items_in, records
from tests.support.story import SESSION, WORKSPACE, Story, part


def story() -> Story:
    told = Story().created()
    told.tell(part("thread.opened", thread_id=made_up_id("sthr")), part("turn.started", turn_id=made_up_id("turn")))
    return told.with_run()


def read(table: GraphStore) -> Graph:
    return graph_of(table.model().graph(WORKSPACE, SESSION, items_max=1000))


def test_the_table_holds_the_graph_and_the_topic_gets_each_item_once_a_transaction() -> None:
    events = story().events
    table = GraphStore()
    table.apply(records(events))
    assert read(table) == folded(events).graph()
    keys = [key for key, _ in table.changelog]
    assert len(keys) == len(set(keys))
    assert keys[-1] == progress_key(0)
    assert len(items_in(table.store, SESSION)) == len(keys) - 1


def test_records_that_do_not_fit_are_gaps_and_the_rest_goes_on() -> None:
    """Read again, under another session's key, empty, unreadable, under a key that names no session."""
    events = story().events
    first, *others = records(events)
    other = made_up_id("sess", "other").encode()
    table = GraphStore()
    table.apply([
        first,
        first._replace(offset=10),
        others[0]._replace(offset=11, key=other),
        others[0]._replace(offset=12, value=None),
        others[0]._replace(offset=13, value=b"\x00 unreadable"),
        others[0]._replace(offset=14, key=b"nobody"),
        *others,
    ])  # fmt: skip
    graph = read(table)
    assert [(gap.offset, gap.reason) for gap in graph.gaps] == [
        (10, "sequence.repeated"), (12, "value.absent"), (13, "wire.schema_id"),
    ]  # fmt: skip
    assert graph.nodes == folded(events).graph().nodes
    (stray,) = [item for item in items_in(table.store, other.decode()).values() if isinstance(item, Gap)]
    assert (stray.offset, stray.reason) == (11, "key.misplaced")
    with pytest.raises(NotFound):
        table.model().graph(WORKSPACE, other.decode(), items_max=10)


def test_a_command_counts_once_its_last_event_is_in() -> None:
    events = story().events
    table = GraphStore()
    assert commands_in(table.store, 0) == 0
    for event, record in zip(events, records(events), strict=True):
        table.apply([record])
        assert commands_in(table.store, 0) == event.command_offset + (1 if event.command_last else 0)


def test_a_deletion_in_the_topic_takes_its_index_along() -> None:
    table = GraphStore()
    table.apply(records(story().events))
    handler = GraphProjection(Settings(partitions=1))
    for key, _ in list(dict(table.changelog).items()):
        table.store.write(list(handler.restored(table.store.get, [(key, None)])), {})
    assert table.store.digest() == MemoryStore().digest()


def test_a_topic_of_another_fold_is_refused_saying_what_to_do() -> None:
    handler, store = GraphProjection(Settings(partitions=1)), MemoryStore()
    for version, refused in ((FOLD_VERSION, False), (FOLD_VERSION + 1, True)):
        row = (progress_key(0), encode_progress(Progress(7, version)))
        if refused:
            with pytest.raises(Misconfigured, match="rebuild --graph"):
                list(handler.restored(store.get, [row]))
        else:
            assert len(list(handler.restored(store.get, [row]))) == 1


def test_items_are_read_back_as_they_were_written() -> None:
    for item in folded(story().events).items.values():
        assert encoding.decode_item(encoding.encode_item(item)) == item
    for value in (b"\x00", encode_progress(Progress(1))):
        with pytest.raises(StoreUnusable):
            encoding.decode_item(value)


def test_another_workspace_or_subject_finds_nothing_and_a_large_graph_is_refused_to_its_owner_only() -> None:
    table = GraphStore()
    table.apply(records(story().events))
    model = table.model()
    for workspace, subject in ((made_up_id("ws", "other"), None), ("", None), (WORKSPACE, made_up_id("subj", "other"))):
        with pytest.raises(NotFound, match=f"^session {SESSION}$"):
            model.graph(workspace, SESSION, subject, items_max=2)
        for node in (SESSION, made_up_id("run", "nowhere")):
            with pytest.raises(NotFound, match=f"^session {SESSION}$"):
                model.around(workspace, SESSION, node, subject, depth=1, nodes_max=9)
    with pytest.raises(Invalid) as refused:
        model.graph(WORKSPACE, SESSION, items_max=2)
    assert refused.value.code == TOO_LARGE
    whole = len(items_in(table.store, SESSION)) - 1
    assert len(model.graph(WORKSPACE, SESSION, items_max=whole).items) == whole
    with pytest.raises(NotFound):
        model.around(WORKSPACE, SESSION, made_up_id("run", "nowhere"), depth=1, nodes_max=9)


def test_sessions_of_one_partition_do_not_mix() -> None:
    events = story().events
    others = [structs.replace(event, session_id=made_up_id("sess", "other")) for event in events]
    mixed, alone = GraphStore(), GraphStore()
    mixed.apply([record for pair in zip(records(events), records(others, first_offset=50), strict=True) for record in pair])
    alone.apply(records(events))
    assert items_in(mixed.store, SESSION) == items_in(alone.store, SESSION)
