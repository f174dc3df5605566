"""Trajectories: a session, a Turn and a Run each; the reward in the structure, `info` as content."""

import json

import pytest

from connectors.sources.samples import FOLDER
from connectors.sources.tau_bench import NotTrajectories, Trajectory, map_trajectory, read_trajectories

SESSION = "sess_" + "2" * 32
SAMPLE = (FOLDER / "trajectories.json").read_bytes()


def trajectories(data: bytes = SAMPLE) -> list[Trajectory]:
    return [found for found in read_trajectories(data) if isinstance(found, Trajectory)]


def test_each_message_and_then_info_is_a_record() -> None:
    source = json.loads(SAMPLE)
    for found, expected in zip(trajectories(), source, strict=True):
        assert [json.loads(record.text) for record in found.records] == [*expected["traj"], expected["info"]]
        assert (found.reward, found.user_id) == (expected["reward"], expected["info"]["task"]["user_id"])
        assert found.metadata == {"task_id": expected["task_id"], "trial": expected["trial"]}


def test_a_trajectory_is_one_turn_and_one_run_that_ends_with_reward_and_info() -> None:
    (found, *_) = trajectories()
    bodies = [body for group in map_trajectory(SESSION, found) for body in group.bodies]
    assert [body.type for body in bodies[:5]] == ["thread.opened", "turn.started", "run.accepted", "attempt.started", "message.appended"]
    assert [body.type for body in bodies[-2:]] == ["run.completed", "turn.completed"]
    assert bodies[-2].attributes == {"reward": 1.0}
    assert bodies[-2].content == found.records[-1].text
    assert sum(body.content is not None for body in bodies) == len(found.records)
    assert all(body.occurred_at is None for body in bodies)


def test_the_runs_end_comes_with_the_last_message_so_that_a_cursor_there_means_all() -> None:
    for found in trajectories():
        groups = map_trajectory(SESSION, found)
        assert groups[-1].index == len(found.records) - 2
        assert "run.completed" in [body.type for body in groups[-1].bodies]


def test_repeated_tool_ids_are_calls_of_their_own_and_errors_are_told() -> None:
    bodies = [body for group in map_trajectory(SESSION, trajectories()[1]) for body in group.bodies]
    called = [body.attributes["call_id"] for body in bodies if body.type == "tool.called"]
    returned = [body for body in bodies if body.type == "tool.returned"]
    assert len(set(called)) == 2
    assert [body.attributes["call_id"] for body in returned] == called
    assert [body.attributes["is_error"] for body in returned] == [True, False]


def test_the_customer_stands_in_content_only() -> None:
    for found in trajectories():
        assert found.user_id is not None
        for group in map_trajectory(SESSION, found):
            for body in group.bodies:
                assert found.user_id not in repr((body.attributes, body.links, body.run_id, body.turn_id))


@pytest.mark.parametrize("data", [b"", b"{}", b'{"traj": []}', b"[1, 2", b"null", b"[1] 2", b"[1 2]", b"[,]", b"\xff"])
def test_a_file_that_is_no_array_is_refused(data: bytes) -> None:
    with pytest.raises(NotTrajectories):
        list(read_trajectories(data))


def test_an_element_of_another_shape_is_told_and_the_others_come_out() -> None:
    good = json.loads(SAMPLE)[0]
    broken = [{"traj": [], "info": {}}, 7, {"traj": "no"}, {"info": {}}, {"traj": [{"role": "user", "content": "\ud800"}], "info": {}}]
    found = list(read_trajectories(json.dumps([*broken, good]).encode()))
    assert [isinstance(each, NotTrajectories) for each in found] == [True] * 5 + [False]
    assert [str(each).split(":")[0] for each in found[:5]] == [f"element {place}" for place in range(5)]


def test_without_reward_task_and_customer_it_is_a_trajectory_still() -> None:
    (found,) = trajectories(b'[{"traj": [{"role": "narrator"}], "info": null}]')
    assert (found.reward, found.user_id, found.metadata) == (None, None, {})
    (group,) = map_trajectory(SESSION, found)
    assert [body.type for body in group.bodies[-3:]] == ["source.recorded", "run.completed", "turn.completed"]
