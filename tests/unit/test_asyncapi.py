"""The document of the topics says what is there: every topic, every schema, every key, and nothing secret."""

import copy
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pytest

from connectors import asyncapi
from schemas import codec
from schemas.catalog import FileRegistry
from streams.log.topics import declared
from streams.session.events import TYPES
from streams.session.items import KINDS
from streams.settings import Settings

SPECIFICATION = "@asyncapi/specs@6.11.1"
SECURED = Settings(
    bootstrap="a.example:9093, b.example:9093",
    topic_prefix="acme.",
    replication=3,
    registry_url="https://tapuser:hunter2@schemas.example/api",
    registry_subjects="acme.{subject}-value",
    kafka={
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "tapuser", "sasl.password": "hunter3",
    },
)  # fmt: skip


@pytest.fixture(params=[Settings(), SECURED], ids=["plain", "secured"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return request.param


@pytest.fixture
def document(settings: Settings) -> dict[str, Any]:
    return json.loads(json.dumps(asyncapi.document(settings, "1.2.3")))


@pytest.fixture(scope="session")
def specification(request: pytest.FixtureRequest) -> Any:
    """The JSON schema of AsyncAPI 3.0.0, as its authors publish it for npm; kept between runs."""
    cache = request.config.cache
    assert cache is not None
    kept = cache.mkdir("asyncapi") / f"{SPECIFICATION.rpartition('@')[2]}.json"
    if not kept.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not on PATH: it brings the schema of AsyncAPI")
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            command = [npm, "pack", SPECIFICATION, "--silent", "--pack-destination", folder]
            packed = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
            archives = list(Path(folder).glob("*.tgz"))
            if packed.returncode != 0 or not archives:
                pytest.skip(f"npm could not bring {SPECIFICATION}: {packed.stderr[-300:]}")
            with tarfile.open(archives[0]) as archive:
                member = archive.extractfile("package/schemas/3.0.0-without-$id.json")
                assert member is not None
                whole = Path(folder) / "schema.json"
                whole.write_bytes(member.read())
            whole.rename(kept)
    return jsonschema.Draft7Validator(json.loads(kept.read_text()))


def targets(part: Any) -> list[str]:
    """Every reference within, `#/...` in extensions included."""
    if isinstance(part, dict):
        return [each for value in part.values() for each in targets(value)]
    if isinstance(part, list):
        return [each for value in part for each in targets(value)]
    return [part] if isinstance(part, str) and part.startswith("#/") else []


def resolve(document: dict[str, Any], reference: str) -> Any:
    part: Any = document
    for step in reference.removeprefix("#/").split("/"):
        part = part[step]
    return part


def test_it_is_an_asyncapi_3_document(document: dict[str, Any], specification: Any) -> None:
    assert [f"{list(error.absolute_path)}: {error.message}" for error in specification.iter_errors(document)] == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("asyncapi",), "2.6.0"),
        (("channels", "sessions.events", "address"), 7),
        (("channels", "sessions.events", "bindings", "kafka", "partitions"), 0),
        (("operations", "authority.send.sessions.events", "action"), "publish"),
        (("components", "messages", "event.v1", "payload", "schema", "fields", 0, "name"), 7),
        (("servers", "broker-1", "protocol"), None),
    ],
)
def test_the_specification_notices_what_is_wrong(specification: Any, path: tuple[Any, ...], wrong: object) -> None:
    document = copy.deepcopy(asyncapi.document(Settings(), "1"))
    resolved: Any = document
    for step in path[:-1]:
        resolved = resolved[step]
    resolved[path[-1]] = wrong
    assert not specification.is_valid(document)


def test_required_parts_are_there_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """Holds without the specification at hand."""
    assert document["asyncapi"] == "3.0.0"
    assert document["info"]["version"] == "1.2.3"
    assert set(document) <= {"asyncapi", "id", "info", "defaultContentType", "servers", "channels", "operations", "components"}
    for server in document["servers"].values():
        assert {"host", "protocol"} <= set(server)
    for channel in document["channels"].values():
        assert {"address", "messages", "bindings"} <= set(channel)
    for operation in document["operations"].values():
        assert operation["action"] in {"send", "receive"}
        assert "address" in resolve(document, operation["channel"]["$ref"])
    for kind in document["components"].values():
        assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in kind)
    references = targets(document)
    assert len(references) > len(document["channels"])
    for reference in references:
        assert resolve(document, reference)


def comparable(value: Any) -> float | str:
    """A number, however it is written; else the word."""
    try:
        return float(value)
    except ValueError:
        return str(value)


def test_every_declared_topic_is_a_channel_with_its_settings(settings: Settings, document: dict[str, Any]) -> None:
    channels = {channel["address"]: channel for channel in document["channels"].values()}
    specs = {spec.name: spec for spec in declared(settings)}
    assert channels.keys() == specs.keys()
    for name, spec in specs.items():
        binding = channels[name]["bindings"]["kafka"]
        assert binding["topic"] == name
        assert binding["partitions"] == spec.partitions(settings)
        assert binding["replicas"] == settings.replication
        assert binding["topicConfiguration"]["cleanup.policy"] == spec.config["cleanup.policy"].split(",")
        said = {setting: value for setting, value in binding["topicConfiguration"].items() if setting != "cleanup.policy"}
        assert {setting: comparable(value) for setting, value in said.items()} == {
            setting: comparable(value) for setting, value in spec.config.items() if setting != "cleanup.policy"
        }
        assert spec.why in channels[name]["description"]
        assert channels[name]["x-why"] == spec.why
        assert channels[name]["x-key"] == spec.key


def test_every_published_schema_is_on_a_channel_or_said_to_stand_within_another(document: dict[str, Any]) -> None:
    on_channels = [name for channel in document["channels"].values() for name in channel["messages"]]
    assert len(on_channels) == len(set(on_channels)), "a schema on two channels has two keys"
    assert set(on_channels) == document["components"]["messages"].keys()
    names = {f"{each.subject.replace('/', '.')}.v{each.version}": each for each in FileRegistry().published()}
    said = {**document["components"]["messages"], **document["components"]["schemas"]}
    assert said.keys() == names.keys()
    for name, each in names.items():
        payload = said[name].get("payload", said[name])
        assert payload["schemaFormat"] == "application/vnd.apache.avro;version=1.9.0"
        assert payload["schema"] == each.schema
        assert said[name]["x-schema-id"] == codec.id_of(each.subject, each.version)
        assert fastavro.parse_schema(payload["schema"])
    assert all(schema["x-stands-in"] for schema in document["components"]["schemas"].values())


def test_every_type_of_event_names_the_schema_of_its_attributes(document: dict[str, Any]) -> None:
    attributes = document["components"]["messages"]["event.v1"]["x-attributes"]
    assert attributes.keys() == TYPES
    for kind, references in attributes.items():
        assert {resolve(document, reference)["x-subject"] for reference in references} == {f"attributes/{kind.split('.')[0]}"}


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ("event.v1", f"sess_{'0a' * 16}"),
        ("command.v1", f"sess_{'0a' * 16}"),
        ("workspace-config.v1", f"ws_{'0a' * 16}/api_key/key_{'0b' * 16}"),
        ("state.outcome-chunk.v1", f"~outcomes/3/{17:020d}"),
        ("graph.node.v1", f"sess_{'0a' * 16}/run_{'0b' * 16}.2"),
        ("graph.edge.v1", f"sess_{'0a' * 16}/contains:sess_{'0a' * 16}:run_{'0b' * 16}"),
        ("graph.progress.v1", "~progress/3"),
        *((f"state.{kind}.v1", f"sess_{'0a' * 16}/{kind}/{'' if kind == 'session' else 'run_' + '0b' * 16}") for kind in KINDS),
    ],
)
def test_keys_are_as_they_are_written(message: str, key: str) -> None:
    pattern = asyncapi.document(Settings(), "1")["components"]["messages"][message]["bindings"]["kafka"]["key"]["pattern"]
    assert re.search(pattern, key)
    assert not re.search(pattern, f"x{key}")


def test_how_long_a_record_is_kept_is_said_in_words() -> None:
    channels = asyncapi.document(Settings(), "1")["channels"]
    assert "Kept without limit." in channels["sessions.events"]["description"]
    assert "Kept for 7 days." in channels["sessions.commands"]["description"]
    assert "the last value of each key" in channels["sessions.state"]["description"]
    assert "read_committed" in channels["sessions.events"]["description"]


def test_it_says_where_to_log_in_and_never_with_what() -> None:
    document = asyncapi.document(SECURED, "1")
    assert [server["host"] for server in document["servers"].values()] == ["a.example:9093", "b.example:9093"]
    server = document["servers"]["broker-2"]
    assert server["protocol"] == "kafka-secure"
    assert document["components"]["securitySchemes"]["sasl"] == {"type": "scramSha512"}
    assert server["bindings"]["kafka"]["schemaRegistryUrl"] == "https://schemas.example/api"
    assert document["components"]["messages"]["event.v1"]["x-registry-subject"] == "acme.event-value"
    text = json.dumps(document)
    assert not re.search("hunter|tapuser", text)


def test_groups_are_named_with_the_prefix_and_readers_of_everything_have_none() -> None:
    operations = asyncapi.document(SECURED, "1")["operations"]
    assert operations["authority.receive.sessions.commands"]["bindings"]["kafka"]["groupId"]["const"] == "acme.authority"
    assert "bindings" not in operations["gateway.receive.sessions.outcomes"]
    assert "bindings" not in operations["authority.receive.sessions.state"]
