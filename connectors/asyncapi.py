"""The interface document of the topics (AsyncAPI 3.0), made of the published schemas and of the declared topics.

Nothing is described twice: keys, partitions, retention and reasons are those of `streams.log.topics`, payloads those of
`schemas/`. What stands here is only which subjects lie on which topic, and who writes and reads it. The document holds
no password and no setting of Kafka beyond where it is and how to log in.

Called by the gateway, which serves it as /asyncapi.json, and by the tests.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from connectors.registry.client import public_address
from connectors.registry.http import SubjectNames
from schemas import codec
from schemas.catalog import FileRegistry, Published
from streams.log.topics import TopicSpec, declared
from streams.session.events import TYPES, family_of
from streams.session.items import KINDS
from streams.settings import Settings

ASYNCAPI: Final = "3.0.0"
SCHEMA_FORMAT: Final = "application/vnd.apache.avro;version=1.9.0"
CONTENT_TYPE: Final = "avro/binary"
_BINDING: Final = "0.5.0"
_DAY_MS: Final = 24 * 3600 * 1000
_HEX: Final = "[0-9a-f]{32}"
_SASL: Final = {
    "PLAIN": "plain",
    "SCRAM-SHA-256": "scramSha256",
    "SCRAM-SHA-512": "scramSha512",
    "GSSAPI": "gssapi",
    "OAUTHBEARER": "oauth2",
}
_GROUPS: Final = frozenset({"authority", "projector", "graph", "custodian", "retention", "agents"})
"""Roles that read as a consumer group of their name; the others assign themselves every partition."""


class _Channel(NamedTuple):
    """What a topic carries. `key` is a pattern, `partition` says how it is found."""

    title: str
    subjects: tuple[str, ...]
    key: str
    partition: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    transactional: bool = False


_SCOPE: Final = f"ws_{_HEX}/subj_{_HEX}/actr_{_HEX}/(task_state|conversation|workflow|cursor)"
_BY_KEY: Final = "murmur2 of the key"
_CHANNELS: Final = {
    "sessions.commands": _Channel(
        "Commands", ("command",), f"^sess_{_HEX}$", _BY_KEY, ("gateway", "custodian", "authority"), ("authority",)
    ),
    "sessions.events": _Channel(
        "Accepted events", ("event",), f"^sess_{_HEX}$", _BY_KEY, ("authority",), ("projector", "graph", "custodian"), True
    ),
    "sessions.outcomes": _Channel(
        "Outcomes of commands", ("outcomes",), "^.+$", "that of the command", ("authority",), ("gateway", "custodian"), True
    ),
    "sessions.state": _Channel(
        "State of sessions, as the authority keeps it",
        tuple(f"state/{kind}" for kind in (*KINDS, "outcome-chunk")),
        f"^(sess_{_HEX}/[a-z]+/[^/]*|~outcomes/[0-9]+/[0-9]+)$",
        "that of the session's events",
        ("authority",),
        ("authority",),
        True,
    ),
    "sessions.checkpoints": _Channel(
        "Checkpoints of sessions",
        ("checkpoint",),
        f"^ckpt_{_HEX}$",
        "that of the session's events",
        ("authority",),
        (),
        True,
    ),
    "sessions.timers": _Channel(
        "What is due in sessions, and what is to be erased in them",
        (
            "timer/armed",
            "timer/upload",
            "timer/begun",
            "timer/erasure",
            "timer/erased",
            "timer/expiry",
            "timer/orders",
            "timer/purged",
        ),
        f"^(sess_{_HEX}/((lease|wait|upload|erase|erased|expiry)/.+|begun)|orders/(followed|purged/[0-9]{{12}}))$",
        "that of the session's events",
        ("custodian",),
        ("custodian",),
        True,
    ),
    "sessions.graph": _Channel(
        "Execution graphs",
        ("graph/node", "graph/edge", "graph/gap", "graph/head", "graph/progress"),
        f"^(sess_{_HEX}/[^/]+|~progress/[0-9]+)$",
        "that of the session's events",
        ("graph",),
        ("graph",),
        True,
    ),
    "sessions.deadletter": _Channel(
        "What could not be read", ("dead-letter",), "^.*$", "that of the record set aside", ("authority", "gateway"), ()
    ),
    "sessions.retention": _Channel(
        "What is retained no longer",
        ("retention",),
        f"^(subject|session|day|dead_letters|checkpoint|capsule|erasure|reissue)/ws_{_HEX}/.+$",
        "there is one",
        ("retention", "custodian"),
        ("retention", "custodian", "agents", "gateway", "authority"),
        True,
    ),
    "sessions.confirmations": _Channel(
        "How far holders of data have followed it",
        ("confirmation",),
        "^.+/.+$",
        "there is one",
        ("retention", "custodian", "agents", "gateway", "authority"),
        ("retention",),
    ),
    "workspaces.commands": _Channel(
        "What the custodian is asked", ("workspace/command",), f"^ws_{_HEX}$", "there is one", ("gateway",), ("retention",)
    ),
    "workspaces.outcomes": _Channel(
        "Outcomes of what it was asked", ("workspace/outcomes",), "^.+$", "there is one", ("retention",), ("gateway",), True
    ),
    "custody.state": _Channel(
        "What is being erased, as the custodian keeps it",
        ("custody/entry",),
        "^.+/.+$",
        "there is one",
        ("retention",),
        ("retention",),
        True,
    ),
    "workspaces.config": _Channel(
        "Settings of workspaces", ("workspace-config",), f"^ws_{_HEX}/[a-z_]+/.+$", "there is one", ("operator",), ("gateway",)
    ),
    "agents.commands": _Channel("Saves of agents' checkpoints", ("agents/command",), f"^{_SCOPE}$", _BY_KEY, ("gateway",), ("agents",)),
    "agents.outcomes": _Channel("Outcomes of saves", ("agents/outcomes",), "^.+$", "that of the command", ("agents",), ("gateway",), True),
    "agents.checkpoints": _Channel(
        "Agents' checkpoints, sealed",
        ("agents/checkpoint", "agents/purged"),
        f"^(~purged/)?{_SCOPE}(#[0-9]{{10}})?$|^~nudge$",
        "that of the command: murmur2 of the scope, without `~purged/` in front and without `#` and what follows",
        ("agents",),
        ("agents",),
        True,
    ),
}

# What never stands at the start of a record: it lies within one.
_WITHIN: Final = {
    "draft": "each of `drafts` of a command, without the five bytes in front, in the version of the command",
    "suffix": "the end of an event's body, after the bytes of its draft",
    "state/recorded-outcome": "`outcome` of each entry of an outcome chunk, as a whole value with its own number in front",
}
_INTRODUCTION: Final = """\
A durable session log for AI agents. `sessions.events` is the truth: every accepted event of a session, in order, with
`sequence` 1, 2, 3, ... without gap. Read it with `isolation.level=read_committed`.

Every value is a zero byte, the number of its schema as four bytes big-endian (`x-schema-id`), and the Avro body. A
session lies in one partition, found with murmur2 as the Java client does (librdkafka: `partitioner=murmur2_random`).
A null value deletes its key. Content is sealed: `content.ciphertext` is opened by the processes that hold its keys.
"""


def document(settings: Settings, version: str) -> dict[str, Any]:
    """The whole document, ready to be encoded as JSON. `version` is that of the software."""
    prefix, published = settings.topic_prefix, FileRegistry().published()
    topics = {spec.name.removeprefix(prefix): spec for spec in declared(settings)}
    servers, schemes = _servers(settings)
    of = {subject: [each for each in published if each.subject == subject] for subject in {each.subject for each in published}}
    within = [each for each in published if each.subject in _WITHIN or each.subject.startswith("attributes/")]
    carried = [(name, each) for name in topics for subject in _CHANNELS[name].subjects for each in of[subject]]
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Session Streams",
            "version": version,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": servers,
        "channels": {name: _channel(name, spec, settings, of) for name, spec in topics.items()},
        "operations": dict(_operations(topics, prefix)),
        "components": {
            "messages": {_name(each): _message(name, each, settings, of) for name, each in carried},
            "schemas": {_name(each): _within(each) for each in within},
            **({"securitySchemes": schemes} if schemes else {}),
        },
    }


def _servers(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """The brokers that the settings name, and how to log in."""
    protocol = settings.kafka.get("security.protocol", "plaintext").lower()
    mechanism = settings.kafka.get("sasl.mechanism", settings.kafka.get("sasl.mechanisms", "")).upper()
    kind = _SASL.get(mechanism) if protocol.startswith("sasl") else None
    # OAuth flows are the issuer's; what is said here is that a token is needed.
    scheme = {"type": "http", "scheme": "bearer"} if kind == "oauth2" else {"type": kind} if kind else None
    server: dict[str, Any] = {
        "protocol": "kafka-secure" if protocol.endswith("ssl") else "kafka",
        "description": "Start here; the cluster names its other brokers.",
        **({"security": [{"$ref": "#/components/securitySchemes/sasl"}]} if scheme else {}),
    }
    if settings.registry_url:
        server["bindings"] = {
            "kafka": {
                "schemaRegistryUrl": public_address(settings.registry_url),
                "schemaRegistryVendor": "confluent",
                "bindingVersion": _BINDING,
            }
        }
    hosts = [host.strip() for host in settings.bootstrap.split(",") if host.strip()]
    return {f"broker-{number}": {"host": host, **server} for number, host in enumerate(hosts, 1)}, {"sasl": scheme} if scheme else {}


def _channel(name: str, spec: TopicSpec, settings: Settings, of: Mapping[str, list[Published]]) -> dict[str, Any]:
    channel = _CHANNELS[name]
    messages = [_name(each) for subject in channel.subjects for each in of[subject]]
    committed = " Written in transactions: read with `isolation.level=read_committed`." if channel.transactional else ""
    return {
        "address": spec.name,
        "title": channel.title,
        "description": f"Key: {spec.key}. Partition: {channel.partition}.{committed} {_kept(spec)}",
        "messages": {each: {"$ref": f"#/components/messages/{each}"} for each in messages},
        "bindings": {
            "kafka": {
                "topic": spec.name,
                "partitions": spec.partitions(settings),
                "replicas": settings.replication,
                "topicConfiguration": {setting: _typed(setting, value) for setting, value in spec.config.items()},
                "bindingVersion": _BINDING,
            }
        },
        "x-key": spec.key,
        "x-why": spec.why,
        "x-transactional": channel.transactional,
    }


def _kept(spec: TopicSpec) -> str:
    if "compact" in spec.config["cleanup.policy"]:
        days = int(spec.config["delete.retention.ms"]) // _DAY_MS
        return f"Compacted: the last value of each key is kept; a deletion shows for {days} days. {spec.why}"
    retention_ms = int(spec.config["retention.ms"])
    return f"Kept {'without limit' if retention_ms < 0 else f'for {retention_ms // _DAY_MS} days'}. {spec.why}"


def _typed(setting: str, value: str) -> object:
    """As the Kafka binding has it: a list of policies, numbers as numbers."""
    if setting == "cleanup.policy":
        return value.split(",")
    try:
        return int(value)
    except ValueError:
        return float(value) if value.replace(".", "", 1).isdigit() else value


def _operations(topics: Mapping[str, TopicSpec], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in topics.items():
        channel = _CHANNELS[name]
        for action, roles in (("send", channel.writers), ("receive", channel.readers)):
            for role in roles:
                operation: dict[str, Any] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{name}"},
                    "title": f"{role} {'writes' if action == 'send' else 'reads'} {spec.name}",
                }
                # A changelog is read by the role that alone writes it, in each partition that it has.
                if action == "receive" and role in _GROUPS and channel.writers != (role,):
                    group = {"type": "string", "const": f"{prefix}{role}"}
                    operation["bindings"] = {"kafka": {"groupId": group, "bindingVersion": _BINDING}}
                yield f"{role}.{action}.{name}", operation


def _name(published: Published) -> str:
    return f"{published.subject.replace('/', '.')}.v{published.version}"


def _message(channel: str, published: Published, settings: Settings, of: Mapping[str, list[Published]]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "name": f"{published.schema['namespace']}.{published.schema['name']}",
        "title": f"{published.schema['name']} version {published.version}",
        "summary": published.schema.get("doc", ""),
        "contentType": CONTENT_TYPE,
        "payload": _payload(published),
        "bindings": {
            "kafka": {
                "key": {"type": "string", "pattern": _CHANNELS[channel].key},
                "schemaIdLocation": "payload",
                "schemaIdPayloadEncoding": "confluent",
                "bindingVersion": _BINDING,
            }
        },
        "x-subject": published.subject,
        "x-schema-id": codec.id_of(published.subject, published.version),
    }
    if settings.registry_url:
        message["x-registry-subject"] = SubjectNames(settings.registry_subjects).outside(published.subject)
    if published.subject == "event":
        message["x-attributes"] = {
            kind: [f"#/components/schemas/{_name(each)}" for each in of[f"attributes/{family_of(kind)}"]] for kind in sorted(TYPES)
        }
    return message


def _within(published: Published) -> dict[str, Any]:
    place = _WITHIN.get(published.subject, "`attributes` of an event of its family, as a whole value with its own number in front")
    return {
        **_payload(published),
        "x-subject": published.subject,
        "x-schema-id": codec.id_of(published.subject, published.version),
        "x-stands-in": place,
    }


def _payload(published: Published) -> dict[str, Any]:
    return {"schemaFormat": SCHEMA_FORMAT, "schema": dict(published.schema)}
