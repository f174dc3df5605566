"""A log is read and written with the registry that it began with, and with no other."""

from collections.abc import Iterator

import pytest

from connectors.registry import RegistryClient, SubjectNames, publish, verify_numbers
from schemas import codec
from streams.errors import Misconfigured
from streams.log.rows import put_row
from streams.log.topics import Topics
from streams.settings import Settings
from tests.support.registry_server import RegistryServer
from tests.support.snippets import run_python

VERIFY = """
from connectors.registry import configure, verify_numbers
from streams.errors import Misconfigured
from streams.settings import Settings
settings = Settings.from_environment()
configure(settings)
try:
    verify_numbers(settings)
except Misconfigured as error:
    print(error.detail)
"""


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer(first_id=700_001).serving() as server:
        client = RegistryClient(server.url)
        publish(client, SubjectNames("session-streams.{subject}"))
        client.close()
        yield server


def put(settings: Settings, key: bytes, value: bytes | None) -> None:
    put_row(settings, Topics(settings.topic_prefix).config, key, value)


def row() -> bytes:
    return codec.encode("workspace-config", {"workspace_id": "ws_1", "kind": "other", "id": "1", "api_key": None, "policy": None})


def test_an_empty_log_may_take_any_registry(settings: Settings) -> None:
    verify_numbers(settings)
    put(settings, b"ws_1/other/1", None)
    verify_numbers(settings)


def test_a_log_of_the_file_registry_is_not_opened_with_other_numbers(settings: Settings, registry: RegistryServer) -> None:
    put(settings, b"ws_1/other/1", row())
    verify_numbers(settings)
    other = run_python(
        VERIFY,
        SESSION_STREAMS_BOOTSTRAP=settings.bootstrap,
        SESSION_STREAMS_TOPIC_PREFIX=settings.topic_prefix,
        SESSION_STREAMS_REGISTRY_URL=registry.url,
    )
    assert other.returncode == 0, other.stderr
    assert "keeps the registry that it began with" in other.stdout


def test_a_log_of_a_registry_is_not_opened_with_the_files_numbers(settings: Settings) -> None:
    put(settings, b"ws_1/other/1", b"\x00" + (700_034).to_bytes(4, "big") + row()[5:])
    with pytest.raises(Misconfigured, match="keeps the registry that it began with"):
        verify_numbers(settings)


def test_a_number_that_means_something_else_is_noticed(settings: Settings) -> None:
    """The registry of before numbered otherwise, and the number happens to exist."""
    put(settings, b"ws_1/other/1", codec.header("event") + row()[5:])
    with pytest.raises(Misconfigured, match="written with the numbers of another registry"):
        verify_numbers(settings)
