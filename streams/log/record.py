"""Records <-> bytes: the border where what came over the log becomes typed, and nothing untyped goes further in.

Rules: an event's value is its draft's bytes, as the command brought them, between the event's header and the
authority's suffix; attributes keep their bytes, since the hash covers them; what is written here can be read here, so
a caller's mistake is `Invalid` before it is in the log; what a command brings is judged by `session.vocabulary`, what
an event says was judged before and only its identifiers are looked at.

Called by the gateway (commands), the authority, the projections, and every other reader of `sessions.*`.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec
from streams.errors import Invalid, RecordUnreadable
from streams.session import vocabulary
from streams.session.commands import Command, Kind, Report
from streams.session.dead_letters import DeadLetter
from streams.session.events import FAMILIES, Attributes, Content, Draft, Event, KeyReference, Link, family_of
from streams.session.outcomes import Outcome

DIGEST_BYTES: Final = 32
_PLAIN_FAMILIES: Final = frozenset({"message", "source", "tool", "artifact"})
"""Families whose attributes no rule of a session looks at."""
_SUBJECTS: Final = {family: f"attributes/{family}" for family in FAMILIES}
_FAMILIES: Final = {f"attributes/{family}": kind for family, kind in FAMILIES.items()}

_KINDS: Final = frozenset(kind.value for kind in Kind)

P = ParamSpec("P")
R = TypeVar("R")


class RawDraft(NamedTuple):
    """A draft's bytes, and those of its attributes within (header included)."""

    body: bytes
    attributes: bytes | None


def _reads(function: Callable[P, R]) -> Callable[P, R]:
    """Turns what is wrong with bytes into `RecordUnreadable`."""

    @wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except codec.Undecodable as error:
            raise RecordUnreadable(str(error), code=error.reason) from error

    return read


def _writes(function: Callable[P, R]) -> Callable[P, R]:
    """Turns what does not fit a schema into `Invalid`: the value came from a caller."""

    @wraps(function)
    def write(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except codec.Unencodable as error:
            raise Invalid(str(error)) from error

    return write


def _refuse(name: str | None) -> None:
    """Refuses bytes in which the field `name` holds what it may not."""
    if name is not None:
        raise RecordUnreadable(f"field.misplaced: {name}", code="field.misplaced")


# -- attributes -------------------------------------------------------------------------------------------------------


@_writes
def encode_attributes(event_type: str, attributes: Attributes | None) -> bytes | None:
    """A whole value of the family's schema. Raises `Invalid`."""
    if attributes is None:
        return None
    name = vocabulary.misplaced_attribute(event_type, attributes)
    if name is not None:
        raise Invalid(f"{name} of {event_type}")
    return codec.encode(_SUBJECTS[family_of(event_type)], msgspec.structs.asdict(attributes))


@_reads
def decode_attributes(value: bytes | None) -> Attributes | None:
    """Raises `RecordUnreadable`."""
    return None if value is None else _attributes(value)


def _attributes(value: bytes) -> Attributes:
    decoded = codec.decode(value)
    kind = _FAMILIES.get(decoded.subject)
    if kind is None:
        raise codec.Undecodable("wire.subject", f"{decoded.subject} is not a family of attributes")
    return kind(**decoded.record)


# -- drafts -----------------------------------------------------------------------------------------------------------


@_writes
def encode_draft(draft: Draft) -> bytes:
    """The bare body. Raises `Invalid` naming the field."""
    name = vocabulary.misplaced(draft)
    if name is not None:
        raise Invalid(name)
    return codec.encode_body(
        "draft",
        {
            "event_id": draft.event_id,
            "session_id": draft.session_id,
            "type": draft.type,
            "workspace_id": draft.workspace_id,
            "thread_id": draft.thread_id,
            "turn_id": draft.turn_id,
            "run_id": draft.run_id,
            "attempt_generation": draft.attempt_generation,
            "native_task_id": draft.native_task_id,
            "actor_id": draft.actor_id,
            "subject_id": draft.subject_id,
            "command_id": draft.command_id,
            "occurred_at": draft.occurred_at,
            "links": [{"relation": link.relation, "id": link.id} for link in draft.links],
            "attributes": encode_attributes(draft.type, draft.attributes),
            "content": msgspec.to_builtins(draft.content, builtin_types=(bytes,)),
        },
    )


def decode_draft(body: bytes, *, attributes: bool = True) -> Draft:
    """As `decode_draft_raw`, without the bytes of the attributes."""
    return decode_draft_raw(body, attributes=attributes)[0]


@_reads
def decode_draft_raw(body: bytes, *, attributes: bool = True) -> tuple[Draft, bytes | None]:
    """A draft and the bytes of its attributes. With `attributes=False`, those of families that no rule looks at stay
    undecoded (None in the draft); they are still of the type's family. Raises `RecordUnreadable`."""
    return _draft(codec.decode_body("draft", body), attributes)


def _draft(record: dict[str, Any], attributes: bool) -> tuple[Draft, bytes | None]:
    raw = _complete(record, every_attribute=attributes)
    draft = Draft(**record)
    _refuse(vocabulary.misplaced(draft))
    if draft.attributes is not None:
        _refuse(vocabulary.misplaced_attribute(draft.type, draft.attributes))
    return draft, raw


def _complete(record: dict[str, Any], *, every_attribute: bool) -> bytes | None:
    """Puts typed links, attributes and content into a decoded draft or event; returns the attributes' bytes."""
    record["links"] = tuple([Link(link["relation"], link["id"]) for link in record["links"]])
    content = record["content"]
    reference = content["key_reference"]
    record["content"] = Content(
        content["state"],
        None if reference is None else KeyReference(reference["subject_id"], reference["session_id"], reference["expiry_day"]),
        content["ciphertext"],
        content["digest"],
    )
    raw: bytes | None = record["attributes"]
    if raw is not None:
        family = family_of(record["type"])
        if codec.subject_of(raw) != _SUBJECTS.get(family):
            raise codec.Undecodable("wire.subject", "attributes are not of the type's family")
        record["attributes"] = _attributes(raw) if every_attribute or family not in _PLAIN_FAMILIES else None
    return raw


# -- commands ---------------------------------------------------------------------------------------------------------


@_writes
def encode_command(command: Command, drafts: Sequence[bytes] | None = None) -> bytes:
    """A whole value. `drafts` are the bodies of the command's drafts, where they are at hand. Raises `Invalid`."""
    name = _misplaced(command)
    if name is not None:
        raise Invalid(name)
    record = {field: getattr(command, field) for field in Command.__struct_fields__}
    record["kind"] = command.kind.value
    record["report"] = None if command.report is None else msgspec.structs.asdict(command.report)
    record["drafts"] = [encode_draft(draft) for draft in command.drafts] if drafts is None else drafts
    return codec.encode("command", record)


def decode_command(value: bytes) -> Command:
    """A command with all attributes of its drafts. Raises `RecordUnreadable`."""
    return _command(value, every_attribute=True)[0]


def decode_command_parts(value: bytes, *, attributes: bool = True) -> tuple[Command, tuple[RawDraft, ...]]:
    """A command, and the bytes of its drafts as its events will hold them. Raises `RecordUnreadable`.

    `attributes=False` leaves attributes undecoded as in `decode_draft_raw`: a third faster, and for commands from a
    trusted writer only, since what is accepted undecodable stays undecodable for every reader.
    """
    return _command(value, every_attribute=attributes)


@_reads
def _command(value: bytes, *, every_attribute: bool) -> tuple[Command, tuple[RawDraft, ...]]:
    decoded = codec.decode(value)
    if decoded.subject != "command":
        raise codec.Undecodable("wire.subject", f"expected command, got {decoded.subject}")
    record = decoded.record
    drafts: list[Draft] = []
    parts: list[RawDraft] = []
    for body in record["drafts"]:
        fields = codec.decode_body("draft", body, version=decoded.version)
        # An event is written in the current version, so its draft's bytes must be of it too.
        current = body if codec.is_current("draft", decoded.version) else codec.encode_body("draft", fields)
        draft, attributes = _draft(fields, every_attribute)
        drafts.append(draft)
        parts.append(RawDraft(current, attributes))
    record["drafts"] = tuple(drafts)
    if record["report"] is not None:
        record["report"] = Report(**record["report"])
    _refuse(None if record["kind"] in _KINDS else "kind")
    record["kind"] = Kind(record["kind"])
    command = Command(**record)
    _refuse(_misplaced(command))
    return command, tuple(parts)


def _misplaced(command: Command) -> str | None:
    if not vocabulary.COMMAND_ID(command.command_id):
        return "command_id"
    if not vocabulary.SESSION_ID(command.session_id):
        return "session_id"
    if not vocabulary.WORKSPACE_ID(command.workspace_id):
        return "workspace_id"
    if not vocabulary.PRINCIPAL_ID(command.principal_id):
        return "principal_id"
    if len(command.request_digest) != DIGEST_BYTES:
        return "request_digest"
    report = command.report
    if report is not None:
        if not vocabulary.RUN_ID(report.run_id):
            return "report.run_id"
        if report.native_task_id is not None and not vocabulary.TASK_ID(report.native_task_id):
            return "report.native_task_id"
    return None


# -- events -----------------------------------------------------------------------------------------------------------


@_writes
def encode_event(
    draft_body: bytes,
    *,
    sequence: int,
    command_offset: int,
    command_last: bool,
    accepted_at: int,
    previous_hash: bytes,
    hash: bytes,
) -> bytes:
    """A whole value: the draft's bytes as they are, and what the authority adds."""
    suffix = codec.encode_body(
        "suffix",
        {
            "sequence": sequence,
            "command_offset": command_offset,
            "command_last": command_last,
            "accepted_at": accepted_at,
            "previous_hash": previous_hash,
            "hash": hash,
        },
    )
    return codec.header("event") + draft_body + suffix


def decode_event(value: bytes) -> Event:
    """Raises `RecordUnreadable`."""
    return decode_event_raw(value)[0]


@_reads
def decode_event_raw(value: bytes) -> tuple[Event, bytes | None]:
    """An event and the bytes of its attributes, from which its hash is recomputed. Raises `RecordUnreadable`."""
    record = codec.decode_as("event", value)
    raw = _complete(record, every_attribute=True)
    event = Event(**record)
    _refuse(vocabulary.misplaced_identifier(event))
    return event, raw


# -- outcomes ---------------------------------------------------------------------------------------------------------


class _OutcomeBatch(Struct, frozen=True):
    reply_to: str
    outcomes: tuple[Outcome, ...]


@_writes
def encode_outcomes(reply_to: str, outcomes: Sequence[Outcome]) -> bytes:
    """What commands of one asking process led to, as one value."""
    record: dict[str, object] = msgspec.to_builtins(_OutcomeBatch(reply_to, tuple(outcomes)))
    return codec.encode("outcomes", record)


@_reads
def decode_outcomes(value: bytes) -> tuple[str, tuple[Outcome, ...]]:
    """The asking process and its outcomes, in the order of decision. Raises `RecordUnreadable`."""
    batch = msgspec.convert(codec.decode_as("outcomes", value), _OutcomeBatch)
    for outcome in batch.outcomes:
        if not (vocabulary.COMMAND_ID(outcome.command_id) and vocabulary.SESSION_ID(outcome.session_id)):
            _refuse("outcomes")
    return batch.reply_to, batch.outcomes


# -- dead letters -----------------------------------------------------------------------------------------------------


@_writes
def encode_dead_letter(letter: DeadLetter) -> bytes:
    """A whole value."""
    return codec.encode("dead-letter", msgspec.structs.asdict(letter))


@_reads
def decode_dead_letter(value: bytes) -> DeadLetter:
    """Raises `RecordUnreadable`."""
    return DeadLetter(**codec.decode_as("dead-letter", value))
