"""The image's health check, asked about a member of a real group."""

import importlib.util
import time
from pathlib import Path

import pytest

from streams.log.membership import GroupConsumer
from streams.log.topics import Topics
from streams.settings import Settings


def test_the_group_of_a_broker_names_an_authority_as_the_health_check_expects(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready once it has partitions; another instance, which never joined, is neither healthy nor ready."""
    specification = importlib.util.spec_from_file_location("healthcheck", Path(__file__).parents[2] / "docker" / "healthcheck.py")
    assert specification is not None
    assert specification.loader is not None
    healthcheck = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(healthcheck)
    monkeypatch.setenv("SESSION_STREAMS_BOOTSTRAP", settings.bootstrap)
    monkeypatch.setenv("SESSION_STREAMS_TOPIC_PREFIX", settings.topic_prefix)
    authority = ["session-streams", "authority"]

    member = GroupConsumer(
        settings, "authority", Topics(settings.topic_prefix).commands, client_id="authority.0",
        on_assigned=dict.fromkeys, on_given_up=lambda _: None,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not member.owned and time.monotonic() < deadline:
            member.read(1, 0.1)
        ready = healthcheck.main(["--ready"], authority)
        assert ready.yes, ready.reason
        assert ready.reason == f"{settings.topic_prefix}authority.0 has partitions [0, 1, 2, 3]"
        assert healthcheck.main([], authority).yes
    finally:
        member.close()
    monkeypatch.setenv("SESSION_STREAMS_INSTANCE", "1")
    assert not healthcheck.main([], authority).yes
