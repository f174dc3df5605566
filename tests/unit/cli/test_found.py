"""Where commands find gateway, key and cluster: flags, then the environment, then what `up` wrote down."""

from pathlib import Path

import pytest

from connectors.cli import found
from connectors.cli.found import Gateway, Up
from streams.errors import Misconfigured

UP = Up(
    gateway="http://127.0.0.1:8700",
    broker="127.0.0.1:20001",
    api_key="sks_from_up",
    workspace_id="ws_" + "1" * 32,
    topic_prefix="p.",
    partitions=3,
    replication=1,
    pid=1,
)


def test_what_up_wrote_down_is_for_its_owner_only_and_is_found(tmp_path: Path) -> None:
    path = found.write_up(tmp_path, UP)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["up.json"]
    assert found.read_up(tmp_path) == UP
    assert found.gateway(url=None, api_key=None, data_dir=tmp_path, environment={}) == Gateway(UP.gateway, UP.api_key)


def test_flags_beat_the_environment_and_that_beats_up_json(tmp_path: Path) -> None:
    found.write_up(tmp_path, UP)
    environment = {"SESSION_STREAMS_URL": "http://env", "SESSION_STREAMS_API_KEY": "sks_env"}
    assert found.gateway(url=None, api_key=None, data_dir=tmp_path, environment=environment) == Gateway("http://env", "sks_env")
    assert found.gateway(url="http://flag", api_key="sks_flag", data_dir=tmp_path, environment=environment) == Gateway(
        "http://flag", "sks_flag"
    )


def test_the_key_of_up_json_is_never_sent_to_another_gateway(tmp_path: Path) -> None:
    found.write_up(tmp_path, UP)
    with pytest.raises(Misconfigured, match="no API key for http://elsewhere"):
        found.gateway(url="http://elsewhere", api_key=None, data_dir=tmp_path, environment={})


def test_without_anything_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="run `session-streams up`") as raised:
        found.gateway(url=None, api_key=None, data_dir=tmp_path, environment={})
    assert f"no up.json in {tmp_path}" in str(raised.value)


def test_the_cluster_is_that_of_up_json_unless_named(tmp_path: Path) -> None:
    found.write_up(tmp_path, UP)
    settings = found.settings(data_dir=tmp_path, environment={})
    assert (settings.bootstrap, settings.topic_prefix, settings.partitions) == (UP.broker, "p.", 3)
    assert found.settings(broker="b:1", data_dir=tmp_path, environment={}).bootstrap == "b:1"
    assert found.settings(data_dir=tmp_path, environment={"SESSION_STREAMS_BOOTSTRAP": "e:1"}).bootstrap == "e:1"
    assert found.settings_of_up(tmp_path, environment={}).topic_prefix == ""


def test_a_broken_up_json_is_said(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text("{")
    with pytest.raises(Misconfigured, match="cannot be read"):
        found.settings(data_dir=tmp_path, environment={})
