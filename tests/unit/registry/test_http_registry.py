"""What a registry on the network adds to the contract: its own numbers, its refusals, and its absence."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors.registry import HttpRegistry, RegistryClient, SubjectNames, configure, publish
from schemas import codec
from schemas.catalog import FileRegistry, UnknownSchema
from schemas.codec import Codec, Undecodable
from streams.errors import Misconfigured, RegistryUnavailable
from streams.settings import Settings
from tests.contract.registry_contract import SUFFIX, folder_with_a_second_suffix
from tests.support.registry_server import RegistryServer
from tests.support.snippets import run_python

NAMES = SubjectNames("session-streams.{subject}")


@pytest.fixture(scope="module")
def running() -> Iterator[RegistryServer]:
    with RegistryServer(first_id=700_001).serving() as server:
        yield server


@pytest.fixture
def server(running: RegistryServer) -> RegistryServer:
    """Empty, and with nothing asked of it."""
    running.empty()
    return running


@pytest.fixture
def client(server: RegistryServer) -> Iterator[RegistryClient]:
    client = RegistryClient(server.url)
    yield client
    client.close()


def schema_of(subject: str, version: int = 1) -> dict[str, Any]:
    registry = FileRegistry()
    return dict(registry.schema_by_id(registry.id_of(subject, version)).schema)


# -- two processes ----------------------------------------------------------------------------------------------------

WRITE = """
from connectors.registry import configure
from streams.settings import Settings
configure(Settings.from_environment())
from streams.log.record import encode_draft, encode_event
from streams.session.events import Draft, MessageAttributes
hex32 = "0" * 32
draft = Draft(event_id=f"evt_{hex32}", session_id=f"sess_{hex32}", type="message.appended", workspace_id=f"ws_{hex32}",
              command_id=f"cmd_{hex32}", attributes=MessageAttributes(role="user", input_tokens=7))
print(encode_event(encode_draft(draft), sequence=1, command_offset=5, command_last=True, accepted_at=9,
                   previous_hash=bytes(32), hash=bytes(32)).hex())
"""
READ = """
import sys
from connectors.registry import configure
from streams.settings import Settings
configure(Settings.from_environment())
from streams.log.record import decode_event
event = decode_event(bytes.fromhex(sys.argv[1]))
print(event.type, event.sequence, event.attributes.role, event.attributes.input_tokens)
"""


def test_an_event_that_one_process_writes_another_reads_by_the_registrys_numbers(server: RegistryServer, client: RegistryClient) -> None:
    """The numbers differ from the file's; only a process with the same registry can read the event."""
    publish(client, NAMES)
    written = run_python(WRITE, SESSION_STREAMS_REGISTRY_URL=server.url)
    assert written.returncode == 0, written.stderr
    value = bytes.fromhex(written.stdout)
    number = int.from_bytes(value[1:5], "big")
    assert number == client.version("session-streams.event", 1).id >= 700_001
    assert client.version("session-streams.attributes.message", 1).id.to_bytes(4, "big") in value

    read = run_python(READ, value.hex(), SESSION_STREAMS_REGISTRY_URL=server.url)
    assert read.stdout.split() == ["message.appended", "1", "user", "7"], read.stderr
    with pytest.raises(Undecodable, match=r"wire\.schema_id"):
        codec.decode(value)


def test_a_process_does_not_start_where_a_schema_is_not_registered(server: RegistryServer) -> None:
    """Nothing is registered by running: it says what to run instead."""
    with pytest.raises(Misconfigured) as refused:
        configure(Settings(registry_url=server.url))
    assert "session-streams.event version 1" in refused.value.detail
    assert f"schemas publish --registry {server.url}" in refused.value.detail
    assert server.subjects == {}


def test_without_a_url_the_numbers_are_the_files() -> None:
    assert configure(Settings()) is None
    assert codec.id_of("event", 1) == FileRegistry().id_of("event", 1)


def test_the_registry_cannot_change_after_the_first_value() -> None:
    used = Codec(FileRegistry())
    used.use(FileRegistry())
    used.encode("suffix", SUFFIX)
    with pytest.raises(RuntimeError, match="before the first value"):
        used.use(FileRegistry())


# -- what it knows and asks -------------------------------------------------------------------------------------------


def test_once_loaded_it_asks_for_nothing_that_the_code_knows(server: RegistryServer, client: RegistryClient) -> None:
    publish(client, NAMES)
    registry = HttpRegistry(client, NAMES)
    registry.load()
    server.requests.clear()
    value = Codec(registry).encode("suffix", SUFFIX)
    assert Codec(registry).decode(value).record == SUFFIX
    assert server.requests == []


def test_a_newer_version_than_the_code_knows_is_read_from_the_registry_once(
    server: RegistryServer, client: RegistryClient, tmp_path: Path
) -> None:
    """A newer process writes version 2; an older one reads it as the version 1 that it knows."""
    newer = FileRegistry(folder_with_a_second_suffix(tmp_path))
    publish(client, NAMES, newer)
    value = Codec(HttpRegistry(client, NAMES, newer)).encode("suffix", {**SUFFIX, "noted": "x"})
    older = HttpRegistry(client, NAMES)
    older.load()
    server.requests.clear()
    for _ in range(2):
        assert Codec(older).decode(value) == ("suffix", 2, SUFFIX)
    assert len(server.requests) == 2
    assert older.current_version("suffix") == 1


def test_a_number_under_other_peoples_names_is_unknown(server: RegistryServer, client: RegistryClient) -> None:
    number = server.register("orders-value", {"type": "record", "name": "Order", "fields": []})
    with pytest.raises(UnknownSchema, match="not registered under a name of ours"):
        HttpRegistry(client, NAMES).schema_by_id(number)


def test_a_schema_that_others_registered_too_is_found_under_our_name(server: RegistryServer, client: RegistryClient) -> None:
    """The number is the schema's, so a name of somebody else may stand first."""
    server.register("sessions.events-value", schema_of("event"))
    publish(client, NAMES)
    registry = HttpRegistry(client, NAMES)
    number = registry.id_of("event", 1)
    assert client.places(number)[0][0] == "sessions.events-value"
    assert HttpRegistry(client, NAMES).schema_by_id(number).subject == "event"


def test_what_was_absent_is_asked_for_again(server: RegistryServer, client: RegistryClient) -> None:
    """The next number given may be the one that was asked for before it was given."""
    registry = HttpRegistry(client, NAMES)
    with pytest.raises(UnknownSchema):
        registry.schema_by_id(700_001)
    publish(client, NAMES)
    assert registry.schema_by_id(700_001).version == 1


def test_another_schema_under_our_name_is_refused(server: RegistryServer, client: RegistryClient) -> None:
    server.register("session-streams.event", {**schema_of("event"), "fields": schema_of("event")["fields"][:-1]})
    with pytest.raises(Misconfigured, match=r"session-streams\.event version 1 is another schema than ours"):
        HttpRegistry(client, NAMES).id_of("event", 1)
    with pytest.raises(Misconfigured, match=r"session-streams\.event version 1 is another schema than ours"):
        publish(client, NAMES)


def test_docs_that_a_registry_dropped_do_not_make_another_schema(server: RegistryServer, client: RegistryClient) -> None:
    stripped = {key: value for key, value in schema_of("suffix").items() if key != "doc"}
    server.register("session-streams.suffix", stripped)
    registry = HttpRegistry(client, NAMES)
    assert registry.schema_by_id(registry.id_of("suffix", 1)).schema == schema_of("suffix")


# -- publishing -------------------------------------------------------------------------------------------------------


def test_publishing_registers_everything_in_order_and_again_does_nothing(server: RegistryServer, client: RegistryClient) -> None:
    published = FileRegistry().published()
    new = publish(client, NAMES)
    assert [(each.subject, each.version) for each in new] == [(each.subject, each.version) for each in published]
    assert [each.id for each in new] == list(range(700_001, 700_001 + len(published)))
    server.requests.clear()
    assert publish(client, NAMES) == []
    assert all(request.startswith("GET ") for request in server.requests)


def test_an_empty_registry_gives_the_numbers_of_the_file() -> None:
    with RegistryServer().serving() as server:
        client = RegistryClient(server.url)
        assert publish(client, NAMES) == list(FileRegistry().published())
        client.close()


def test_a_further_version_is_added_to_what_is_there(client: RegistryClient, tmp_path: Path) -> None:
    publish(client, NAMES)
    new = publish(client, NAMES, FileRegistry(folder_with_a_second_suffix(tmp_path)))
    assert [(each.subject, each.version) for each in new] == [("suffix", 2)]


@pytest.mark.parametrize(
    ("level", "after"),
    [
        ("NONE", "FULL_TRANSITIVE"),
        ("BACKWARD", "FULL_TRANSITIVE"),
        ("FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
        ("BACKWARD_TRANSITIVE", None),
        ("FULL_TRANSITIVE", None),
    ],
)
def test_publishing_sees_to_it_that_every_version_stays_readable(level: str, after: str | None) -> None:
    """A level that is strict enough is left as the operator chose it; other people's subjects are left alone."""
    with RegistryServer(level=level).serving() as server:
        client = RegistryClient(server.url)
        publish(client, NAMES)
        client.close()
        assert server.levels == ({} if after is None else dict.fromkeys(server.subjects, after))


def test_a_registry_that_refuses_to_keep_versions_compatible_is_refused(server: RegistryServer, client: RegistryClient) -> None:
    server.read_only = True
    with pytest.raises(Misconfigured, match="read-only"):
        publish(client, NAMES)
    assert server.subjects == {}


def test_a_version_that_the_registry_holds_to_be_incompatible_is_not_registered(
    server: RegistryServer, client: RegistryClient, tmp_path: Path
) -> None:
    """The registry says no, and so do we before anything is sent."""
    folder = folder_with_a_second_suffix(tmp_path)
    publish(client, NAMES)
    schema = json.loads((folder / "suffix.v2.avsc").read_text())
    schema["fields"][-1] = {"name": "noted", "type": "string"}
    with pytest.raises(Misconfigured, match="noted"):
        client.register("session-streams.suffix", schema)
    assert client.incompatibilities("session-streams.suffix", schema) == ["noted: not written, and has no default"]
    (folder / "suffix.v2.avsc").write_text(json.dumps(schema))
    with pytest.raises(Misconfigured, match="cannot be read as each other"):
        publish(client, NAMES, FileRegistry(folder))
    assert len(server.subjects["session-streams.suffix"]) == 1


def test_a_name_that_was_in_use_before_is_refused(server: RegistryServer, client: RegistryClient) -> None:
    """Deleted versions count: what is our first would be the registry's second for ever."""

    class Renumbered(RegistryClient):
        def version(self, subject: str, version: int | str) -> Any:
            found = super().version(subject, version)
            return found._replace(version=found.version + 1)

    renumbered = Renumbered(server.url)
    with pytest.raises(Misconfigured, match="the name was in use before"):
        publish(renumbered, NAMES)
    renumbered.close()


# -- names ------------------------------------------------------------------------------------------------------------


def test_subjects_go_under_the_registrys_names_and_back() -> None:
    names = SubjectNames("acme.{subject}-value")
    assert names.outside("attributes/message") == "acme.attributes.message-value"
    for each in FileRegistry().published():
        assert names.inside(names.outside(each.subject)) == each.subject
    assert names.inside("orders-value") is None
    assert names.inside("acme.event") is None


@pytest.mark.parametrize("template", ["", "fixed", "{subject}{subject}", "a/{subject}", "{Subject}"])
def test_names_that_cannot_tell_subjects_apart_are_refused(template: str) -> None:
    with pytest.raises(Misconfigured, match="registry_subjects"):
        SubjectNames(template)


def test_names_may_be_chosen_freely(server: RegistryServer, client: RegistryClient) -> None:
    names = SubjectNames("ACME team/{subject}+v".replace("/", "·"))
    publish(client, names)
    HttpRegistry(client, names).load()
    assert "ACME team·state.run+v" in server.subjects


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_what_passes_by_itself_is_tried_again(server: RegistryServer, client: RegistryClient) -> None:
    publish(client, NAMES)
    server.failures[:] = [500, 429]
    assert HttpRegistry(client, NAMES).id_of("event", 1) >= 700_001
    server.failures[:] = [503, 502, 500]
    with pytest.raises(RegistryUnavailable) as refused:
        HttpRegistry(client, NAMES).id_of("event", 1)
    assert "500 failing as asked" in refused.value.detail


def test_a_registry_that_is_not_there_is_unavailable_and_no_reason_to_set_a_record_aside() -> None:
    """The codec passes it on: a record must not become a dead letter because the registry is down."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        client = RegistryClient(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(RegistryUnavailable, match="ConnectError"):
            Codec(HttpRegistry(client, NAMES)).decode(b"\x00\x00\x00\x00\x07" + b"body")
        client.close()


def test_a_registry_that_hangs_is_unavailable_within_seconds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = RegistryClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(RegistryUnavailable, match="ReadTimeout"):
            client.version("session-streams.event", 1)
        client.close()


@pytest.mark.parametrize("status", [400, 404, 405, 301])
def test_another_server_behind_the_url_is_for_the_operator(server: RegistryServer, client: RegistryClient, status: int) -> None:
    """A proxy's 404 is not the registry's: it must not pass for `no such schema`."""
    elsewhere = RegistryClient(f"{server.url}/elsewhere")
    with pytest.raises(Misconfigured, match="no schema registry answers there"):
        HttpRegistry(elsewhere, NAMES).schema_by_id(1)
    elsewhere.close()
    server.failures[:] = [status]
    with pytest.raises(Misconfigured):
        client.version("session-streams.event", 1)


def test_a_password_is_sent_and_never_shown() -> None:
    with RegistryServer(credentials=("writer", "hunter:2")).serving() as server:
        host = server.url.removeprefix("http://")
        right = RegistryClient(f"http://writer:hunter%3A2@{host}")
        publish(right, NAMES)
        assert right.address == server.url
        wrong = RegistryClient(f"http://writer:wrong@{host}")
        with pytest.raises(Misconfigured, match="401") as refused:
            HttpRegistry(wrong, NAMES).load()
        assert "writer" not in refused.value.detail
        assert "wrong" not in refused.value.detail
        for client in (right, wrong):
            client.close()


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://registry", "http://", "http://:8081", "\x00"])
def test_what_is_no_address_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="the registry's URL"):
        RegistryClient(url)


def test_settings_name_the_registry() -> None:
    given = {"SESSION_STREAMS_REGISTRY_URL": "http://registry:8081", "SESSION_STREAMS_REGISTRY_SUBJECTS": "x.{subject}"}
    assert Settings.from_environment(given) == replace(Settings(), registry_url="http://registry:8081", registry_subjects="x.{subject}")
