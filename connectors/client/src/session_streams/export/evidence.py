"""What a position's hash is taken over, and what its attributes say: docs/wire-format.md, sections 1 and 4."""

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

CHAIN: Final = "session-streams/chain/v1"
SCHEMAS: Final = {
    "attributes/approval.v1": "2d3c7c6ea464d19af1ae82240df2c12440ef11a1e49a28104fd881569d619e95",
    "attributes/artifact.v1": "6ffeb9dfc4fdaabe153d96445649973a337f9be42d68a6d3f9c938b269ba9e94",
    "attributes/attempt.v1": "d730551d2bb263bbd33704d68ca35b4745739bdcb934b61d1eeb80cf6fee6250",
    "attributes/attempt.v2": "30306aa7785316c3951740353c51e23c4041d774756899029fbec2105e2f5e48",
    "attributes/capsule.v1": "404b306e1d701bcefcaf8e5070f71a3b1fd9b87fa527eb140813f141eb430b42",
    "attributes/checkpoint.v1": "0c21557a5cf670d944965eb48eb57f10dab3a2e2264016a1eb1495fd05d7b235",
    "attributes/child.v1": "206ee2f588b15b6d935dcf73fd7579800676ac4cc4dee3e9aa85794de5dc21e0",
    "attributes/context.v1": "4079a0f7e1f6fc026aff6064a85ba79f16d6d5fa58d272e752f6fc0c3acfa90b",
    "attributes/effect.v1": "9dd5f534937b4666aa5caba12b25e89f670657fb0558f4bf693c3555eba1e2cd",
    "attributes/message.v1": "d2d4fc5665a499620871f0aab51eabaa6716ad9a02e44b4addb920601f4b2156",
    "attributes/run.v1": "80a7b323b097b8c96404429b6c220edc1a6555490afc026eb764cfdeb6bc584c",
    "attributes/session.v1": "059677019ef32db8037f15d9e837576f4f62ff50832f9a1559f6e161e4c77c9c",
    "attributes/session.v2": "d041f5b4ae5a7dfc048c96a56cbfeda300ef7fa7f39a726a5571372390bd53c4",
    "attributes/source.v1": "ec0f6021e8bac778a252a433023892ed4772b5f568f19a07db717164f54d5434",
    "attributes/steering.v1": "33db766777d94fec0db3513424bc060531960900344924e341c5d6a7162339b3",
    "attributes/thread.v1": "c820f9727aea6701a20981408884b60f2b667fe0b2709983713196de03da562e",
    "attributes/tool.v1": "283abe2f5dd96a8e76aaf339e62603a0e821887fce32d1e33c1c75878fac91e8",
    "attributes/turn.v1": "6cb8448bc8251fd6ca37d97aac2f2cfc71b9ca5e9e956428e725445c70363011",
    "attributes/wait.v1": "b10d93bc1da58b28bade604a3eebdb0c1174572d6c6fd191e1fa2f37f0af3357",
}
"""SHA-256 of each published schema of attributes: what a file says about itself proves nothing."""

_BEFORE: Final = (
    "event_id", "session_id", "type", "workspace_id", "thread_id", "turn_id", "run_id", "attempt_generation", "native_task_id",
    "actor_id", "subject_id", "command_id", "occurred_at",
)  # fmt: skip
_BEHIND: Final = ("sequence", "command_offset", "command_last", "accepted_at")


def genesis(session_id: str) -> str:
    return hashlib.sha256(CHAIN.encode() + session_id.encode()).hexdigest()


def is_published(name: str, schema: object) -> bool:
    """Whether a schema is the published one of this name (`attributes/message.v1`)."""
    form = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(form.encode()).hexdigest() == SCHEMAS.get(name)


def content_digest(salt: str, text: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + text.encode()).hexdigest()


def position_hash(line: Mapping[str, Any]) -> str:
    """The hash that a position must have, by its fields. Raises ValueError where its attributes are not in base64."""
    content, attributes = line["content"], line["attributes"]
    key = content["key_reference"]
    parts = [bytes.fromhex(line["previous_hash"]), *(_lp(line[name]) for name in _BEFORE)]
    parts.append(_lp(b"".join(_lp(link["relation"]) + _lp(link["id"]) for link in line["links"])))
    parts.append(_lp(None if attributes is None else base64.b64decode(attributes["bytes"], validate=True)))
    parts.append(_lp(content["state"]))
    parts.append(_lp(None if key is None else b"".join(map(_lp, key.values()))))
    parts.append(_lp(None if content["digest"] is None else bytes.fromhex(content["digest"])))
    return hashlib.sha256(b"".join((*parts, *(_lp(line[name]) for name in _BEHIND)))).hexdigest()


def _lp(value: bytes | str | int | None) -> bytes:
    """The value with its length in front."""
    if value is None:
        return b"\xff\xff\xff\xff"
    if isinstance(value, bool):
        value = b"\x01" if value else b"\x00"
    elif isinstance(value, int):
        value = value.to_bytes(8, "big", signed=True)
    elif isinstance(value, str):
        value = value.encode()
    return len(value).to_bytes(4, "big") + value


class Attributes:
    """Decodes attributes by the schemas of one export, all of them published."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._names: dict[int, str] = {}

    def decoded(self, event_type: str, name: str, text: str) -> dict[str, Any]:
        """What the bytes (base64) hold, without what is absent. Raises ValueError saying what is wrong with them."""
        if name not in self._schemas or name.rpartition(".")[0] != f"attributes/{event_type.partition('.')[0]}":
            raise ValueError("schema: not one of the type's family")
        value = base64.b64decode(text, validate=True)
        if base64.b64encode(value).decode() != text:
            raise ValueError("bytes: spelled otherwise than an export is")
        number = int.from_bytes(value[1:5], "big")
        if len(value) < 5 or value[0] != 0 or self._names.setdefault(number, name) != name:
            raise ValueError("schema: the number in front of the bytes stands for another one")
        try:
            return _record(value[5:], self._schemas[name])
        except (IndexError, struct.error):
            raise ValueError("bytes: too short") from None


def _record(body: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an Avro record that are there. Raises ValueError, IndexError, struct.error."""
    fields, place = {}, 0
    for each in schema["fields"]:
        kinds, branch = each["type"], 0
        if isinstance(kinds, list):
            branch, place = _number(body, place)
        else:
            kinds = [kinds]
        if not 0 <= branch < len(kinds):
            raise ValueError(f"bytes: {each['name']} is of no kind that it may be")
        kind = kinds[branch]
        value, place = _value(body, place, kind["type"] if isinstance(kind, dict) else kind)
        if value is not None:
            fields[each["name"]] = value
    if place != len(body):
        raise ValueError("bytes: some are left over")
    return fields


def _value(body: bytes, place: int, kind: str) -> tuple[Any, int]:
    match kind:
        case "null":
            return None, place
        case "boolean":
            return body[place] != 0, place + 1
        case "int" | "long":
            return _number(body, place)
        case "double":
            (number,) = struct.unpack_from("<d", body, place)
            # JSON has no form for NaN and the infinities: their names stand for them.
            return number if number - number == 0 else str(number), place + 8
        case "string":
            length, place = _number(body, place)
            if not 0 <= length <= len(body) - place:
                raise ValueError("bytes: a text goes on behind them")
            return body[place : place + length].decode(), place + length
    raise ValueError(f"schema: {kind} is not known here")


def _number(body: bytes, place: int) -> tuple[int, int]:
    """A whole number as Avro has it: zigzag, seven bits a byte."""
    number = shift = 0
    while True:
        byte = body[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
        if shift > 63:
            raise ValueError("bytes: a number is longer than 64 bits")
