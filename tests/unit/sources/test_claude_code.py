"""Transcripts: one content-bearing event a record; Turns, Runs, tools, children and threads derived from it."""

import json
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.sources import claude_records
from connectors.sources.bodies import Batch, EventBody, Group, Ref, software_name
from connectors.sources.claude_code import ClaudeCodeMapper
from connectors.sources.records import LineSplitter, Record, read_record, read_tail
from connectors.sources.samples import FOLDER
from streams.session.vocabulary import NAME
from tests.unit.sources.test_records import JSON

SESSION = "sess_" + "1" * 32


def records_of(data: bytes) -> list[Record]:
    splitter = LineSplitter()
    found = [read_record(line) for line in splitter.feed(data)]
    tail = splitter.tail()
    last = None if tail is None else read_tail(tail)
    return [record for record in [*found, *([last] if last else [])] if isinstance(record, Record)]


def mapped(*sources: object, agent_id: str | None = None) -> list[Group]:
    mapper = ClaudeCodeMapper(SESSION, agent_id)
    data = b"".join(json.dumps(source).encode() + b"\n" for source in sources)
    return [mapper.map(record) for record in records_of(data)]


def sample(name: str) -> list[Group]:
    mapper = ClaudeCodeMapper(SESSION)
    return [mapper.map(record) for record in records_of((FOLDER / name).read_bytes())]


def events(groups: Iterable[Group], event_type: str) -> list[EventBody]:
    return [body for group in groups for body in group.bodies if body.type == event_type]


def content(group: Group) -> EventBody:
    return group.bodies[group.content_at]


def user(text: object = "do it", uuid: str = "u1", parent: str | None = None, **more: object) -> dict[str, object]:
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": text}, **more}


def calls(*tool_ids: str, uuid: str = "a1", **more: object) -> dict[str, object]:
    blocks = [{"type": "tool_use", "id": tool_id, "name": "Bash", "input": {}} for tool_id in tool_ids]
    return {"type": "assistant", "uuid": uuid, "message": {"role": "assistant", "content": blocks}, **more}


def result(tool_id: str, uuid: str = "r1", **more: object) -> dict[str, object]:
    return user([{"type": "tool_result", "tool_use_id": tool_id, "content": "done", **more}], uuid)


@pytest.mark.parametrize("name", ["berth-pagination.jsonl", "tide-tables.jsonl", "pilot-roster.jsonl"])
def test_each_record_gives_exactly_one_event_with_content_its_own_text(name: str) -> None:
    lines = (FOLDER / name).read_bytes().splitlines()
    groups = sample(name)
    assert [[body.content for body in group.bodies if body.content is not None] for group in groups] == [[line] for line in lines]
    assert [content(group).attributes["source_index"] for group in groups] == list(range(len(lines)))
    assert {content(group).type for group in groups} == {"message.appended", "source.recorded"}


@given(st.lists(JSON, max_size=6))
def test_arbitrary_records_keep_their_bytes_and_their_order(values: list[object]) -> None:
    texts = [json.dumps(value).encode() for value in values]
    records = records_of(b"".join(text + b"\n" for text in texts))
    mapper = ClaudeCodeMapper(SESSION)
    held = [content(mapper.map(record)).content for record in records]
    assert held == [record.text for record in records]


RECORDISH = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["user", "assistant", "progress", "system", "", 7, None]),
        "uuid": st.sampled_from(["a", "b", "c", 1]),
        "parentUuid": st.sampled_from(["a", "b", "c", None, 2]),
        "isSidechain": st.booleans(),
        "isMeta": st.booleans(),
        "agentId": st.sampled_from(["x", "y"]),
        "parentToolUseID": st.sampled_from(["t1", "t2"]),
        "data": st.just({"type": "agent_progress", "agentId": "x"}) | JSON,
        "timestamp": st.sampled_from(["2026-01-01T00:00:00Z", "yesterday", 5]),
        "message": JSON
        | st.fixed_dictionaries(
            {
                "content": st.text(max_size=5)
                | st.lists(
                    st.fixed_dictionaries(
                        {"type": st.sampled_from(["text", "tool_use", "tool_result"])},
                        optional={
                            "id": st.sampled_from(["t1", "t2", 3]),
                            "tool_use_id": st.sampled_from(["t1", "t2", 3]),
                            "text": JSON,
                            "name": JSON,
                        },
                    ),
                    max_size=3,
                )
            },
            optional={"usage": JSON, "model": JSON, "id": JSON},
        ),
    },
)


@given(st.lists(RECORDISH, max_size=8), st.integers(0, 400))
def test_a_file_cut_at_any_byte_and_then_completed_gives_the_same_events(sources: list[object], cut: int) -> None:
    """The first reading ends in the middle of a line; the second goes on with the rest."""
    data = b"".join(json.dumps(source).encode() + b"\n" for source in sources)
    mapper, splitter, found = ClaudeCodeMapper(SESSION), LineSplitter(), []
    for piece in (data[:cut], data[cut:]):
        lines = [read_record(line) for line in splitter.feed(piece)]
        tail = splitter.tail()
        whole = None if tail is None else read_tail(tail)
        if whole is not None:
            splitter.take_tail()
            lines.append(whole)
        found += [mapper.map(record) for record in lines if isinstance(record, Record)]
    assert found == mapped(*sources)


@settings(max_examples=60)
@given(st.lists(RECORDISH, max_size=8))
def test_whatever_a_transcript_holds_its_bodies_can_be_encoded(sources: list[object]) -> None:
    batch = Batch()
    for group in mapped(*sources):
        batch.add(group)
    lines = [json.loads(line) for line in batch.encode({}).splitlines()]
    assert len(lines) == batch.event_count


def test_a_prompt_opens_turn_and_run_and_the_next_one_settles_them() -> None:
    first, _, second = mapped(user("one", "u1"), calls(uuid="a1"), user("two", "u2", "a1"))
    assert [body.type for body in first.bodies] == [
        "thread.opened",
        "turn.started",
        "run.accepted",
        "attempt.started",
        "message.appended",
    ]
    assert [body.type for body in second.bodies] == [
        "run.completed",
        "turn.completed",
        "turn.started",
        "run.accepted",
        "attempt.started",
        "message.appended",
    ]
    accepted = events([first], "run.accepted")[0]
    assert (accepted.attributes["origin"], accepted.attributes["claimable"]) == ("imported", False)
    assert content(first).run_id == second.bodies[0].run_id != content(second).run_id


def test_the_last_run_stays_open_because_a_transcript_may_grow() -> None:
    groups = sample("berth-pagination.jsonl")
    assert len(events(groups, "run.accepted")) == 2
    assert len(events(groups, "run.completed")) == 1


@pytest.mark.parametrize(
    "source",
    [
        result("t1"),
        user("x", isMeta=True),
        user("x", isCompactSummary=True),
        user("x", isSidechain=True),
        user("[Request interrupted by user]"),
        user([{"type": "text", "text": "[Request interrupted by user for tool use]"}]),
        user("<command-name>/clear</command-name>"),
        user("<local-command-stdout>ok</local-command-stdout>"),
        user("<bash-input>ls</bash-input>"),
        {"type": "user", "message": "not an object"},
        {"type": "assistant", "message": {"content": "hello"}},
    ],
)
def test_what_is_no_prompt_of_a_person_opens_nothing(source: dict[str, object]) -> None:
    assert not claude_records.is_prompt(source)


@pytest.mark.parametrize(
    "source",
    [
        user("hello"),
        user([{"type": "text", "text": "hello"}]),
        user([{"type": "image", "source": {}}, {"type": "text", "text": "see"}]),
        user("<command-message>review</command-message>\n<command-name>/review</command-name>"),
    ],
)
def test_a_prompt_is_a_prompt_in_any_form(source: dict[str, object]) -> None:
    assert claude_records.is_prompt(source)


def test_an_interrupted_run_is_cancelled_when_the_next_prompt_comes() -> None:
    groups = mapped(user("one"), user("[Request interrupted by user]", "u2"), user("two", "u3"))
    assert events(groups, "run.cancelled")[0].attributes == {"reason": "interrupted"}
    assert events(groups, "turn.completed")[0].attributes == {"outcome": "interrupted"}
    assert events(groups, "run.completed") == []


def test_a_run_that_went_on_after_an_interruption_is_completed() -> None:
    groups = mapped(user("one"), user("[Request interrupted by user]", "u2"), calls(), user("two", "u3"))
    assert len(events(groups, "run.completed")) == 1


def test_a_parent_links_to_the_event_of_its_record_and_a_missing_one_is_a_gap() -> None:
    first, second, third = mapped(user("one", "u1"), calls(uuid="a1", parentUuid="u1"), user("two", "u2", "elsewhere"))
    assert content(first).links == ()
    assert content(second).links == (("parent_event", Ref(0)),)
    assert content(third).links == ()
    assert content(third).attributes["source_gap"] == "parent_missing"


def test_a_parent_that_was_recorded_twice_is_the_latest_one() -> None:
    groups = mapped(user("one", "u1"), user("one", "u1"), calls(parentUuid="u1"))
    assert content(groups[2]).links == (("parent_event", Ref(1)),)
    assert len({body.run_id for body in events(groups, "run.accepted")}) == 2


def test_a_result_answers_its_call_and_one_without_call_is_a_gap() -> None:
    groups = mapped(calls("t1", "t2"), result("t2", is_error=True), result("t1", "r2"), result("t9", "r3"))
    first, second = events(groups, "tool.called")
    returned = events(groups, "tool.returned")
    assert [body.attributes["call_id"] for body in returned[:2]] == [second.attributes["call_id"], first.attributes["call_id"]]
    assert [body.attributes["is_error"] for body in returned] == [True, False, False]
    assert [body.attributes.get("gap") for body in returned] == [None, None, "call_missing"]
    assert all(body.content is None for body in returned)


def test_a_tool_id_that_repeats_is_another_call_each_time() -> None:
    groups = mapped(calls("t1"), result("t1"), calls("t1", uuid="a2"), result("t1", "r2"))
    called = [body.attributes["call_id"] for body in events(groups, "tool.called")]
    assert called == [body.attributes["call_id"] for body in events(groups, "tool.returned")]
    assert len(set(called)) == 2


def test_an_agent_at_work_is_a_child_from_its_first_record_to_its_calls_result() -> None:
    groups = sample("tide-tables.jsonl")
    (started,), (settled,) = events(groups, "child.started"), events(groups, "child.settled")
    assert started.attributes["child_id"] == settled.attributes["child_id"]
    assert settled.attributes["outcome"] == "completed"
    told = [content(group) for group in groups if ("child", started.attributes["child_id"]) in content(group).links]
    assert [body.attributes["source_record_kind"] for body in told] == ["progress/agent_progress"] * 4
    assert {body.type for body in told} == {"source.recorded"}


def test_a_child_that_settles_in_a_later_run_still_belongs_to_its_own() -> None:
    progress = {"type": "progress", "data": {"type": "agent_progress", "agentId": "x"}, "parentToolUseID": "t1"}
    groups = mapped(user("one"), calls("t1"), progress, user("two", "u2"), result("t1"))
    assert events(groups, "child.settled")[0].run_id == events(groups, "child.started")[0].run_id
    assert content(groups[-1]).run_id != events(groups, "child.started")[0].run_id


def test_sidechain_records_stand_in_a_thread_of_their_own() -> None:
    main, first, second, other = mapped(
        user("one", "u1"),
        user("look", "s1", isSidechain=True),
        calls(uuid="s2", parentUuid="s1", isSidechain=True),
        user("look there", "s3", isSidechain=True),
    )
    opened = events([first, second, other], "thread.opened")
    assert [body.attributes["kind"] for body in opened] == ["child", "child"]
    assert content(first).thread_id == content(second).thread_id == opened[0].thread_id != content(other).thread_id
    assert opened[0].attributes["parent_thread_id"] == content(main).thread_id


def test_an_agents_file_is_one_thread_and_opens_no_turn() -> None:
    mapper = ClaudeCodeMapper(SESSION, "a7c31f0")
    groups = [mapper.map(record) for record in records_of((FOLDER / "agent-a7c31f0.jsonl").read_bytes())]
    assert [body.attributes["kind"] for body in events(groups, "thread.opened")] == ["main", "child"]
    assert {content(group).thread_id for group in groups} == {events(groups, "thread.opened")[1].thread_id}
    assert {content(group).attributes["source_kind"] for group in groups} == {"claude-code-agent"}
    assert events(groups, "run.accepted") == []


def test_token_counts_add_up_although_an_answers_records_repeat_them() -> None:
    def part(output: int) -> dict[str, object]:
        return {"type": "assistant", "message": {"id": "m1", "content": [], "usage": {"input_tokens": 9, "output_tokens": output}}}

    told = [content(group).attributes for group in mapped(part(1), part(1), part(40))]
    assert [attributes["output_tokens"] for attributes in told] == [1, 0, 39]
    assert [attributes["input_tokens"] for attributes in told] == [9, 0, 0]


def test_no_outside_id_and_no_text_stands_in_clear() -> None:
    """Everything but the content, of all samples, is searched for what the source calls things."""
    for name in ("berth-pagination.jsonl", "tide-tables.jsonl", "pilot-roster.jsonl"):
        data = (FOLDER / name).read_bytes()
        batch = Batch()
        for group in sample(name):
            bare = [body for body in group.bodies if body.content is None]
            batch.add(Group(group.index, group.digest, tuple(bare), 0))
            attributes = json.dumps([content(group).attributes, [str(link) for link in content(group).links]])
            for outside in _outside_names(data):
                assert outside not in attributes
        encoded = batch.encode(dict.fromkeys(range(1000), "evt_x")).decode()
        for outside in _outside_names(data):
            assert outside not in encoded


def _outside_names(data: bytes) -> set[str]:
    names: set[str] = set()
    for record in map(json.loads, data.splitlines()):
        names |= {record[name] for name in ("uuid", "sessionId", "cwd", "gitBranch", "requestId") if isinstance(record.get(name), str)}
        content = record.get("message", {}).get("content")
        for block in content if isinstance(content, list) else []:
            names |= {block[name] for name in ("id", "tool_use_id") if name in block}
    return names - {"main"}


def test_a_kind_that_is_no_word_is_not_shown() -> None:
    kinds = [
        content(group).attributes["source_record_kind"] for group in mapped({"type": "Ada's notes"}, {"type": "a/b"}, {"type": "_a"}, 5, {})
    ]
    assert kinds == ["other", "other", "other", "unknown", "unknown"]


def test_every_kind_and_name_that_is_shown_is_one_that_the_log_takes() -> None:
    long = "k" * 63
    (group,) = mapped({"type": long, "subtype": long})
    assert NAME(str(content(group).attributes["source_record_kind"]))
    for name in ("_private", ".hidden", "n" * 129, "two words", "<synthetic>", None):
        assert software_name(name) is None


def test_samples_show_what_transcripts_hold() -> None:
    groups = [group for name in ("berth-pagination.jsonl", "tide-tables.jsonl", "pilot-roster.jsonl") for group in sample(name)]
    kinds = Counter(content(group).attributes["source_record_kind"] for group in groups)
    assert kinds["system/compact_boundary"] == kinds["summary"] == kinds["queue-operation"] == 1
    assert kinds["progress/agent_progress"] == 4
