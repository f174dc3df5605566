"""Records <-> bytes: the border where what came over the log becomes typed, and nothing untyped goes further in.

What has the usual shape goes the short way (`streams.log.shapes`), everything else through the codec and the vocabulary; the
short way gives the same result or none.

Rules: an event's value is its draft's bytes, as the command brought them, between the event's header and the
authority's suffix; attributes keep their bytes, since the hash covers them; what is written here can be read here, so
a caller's mistake is `Invalid` before it is in the log; what a command brings is judged by `session.vocabulary`, what
an event says was judged before and only its identifiers are looked at.

Called by the gateway (commands), the authority, the projections, and every other reader of `sessions.*`.
"""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from schemas import codec
from schemas.primitives import long_text
from streams.errors import Invalid, RecordUnreadable
from streams.log.attributes import SUBJECTS, usual_attributes, written_attributes
from streams.log.outcomes import told, written_batch
from streams.log.shapes.commands import read_command, write_command
from streams.log.shapes.drafts import read_draft, write_draft
from streams.log.shapes.events import read_event
from streams.session import vocabulary
from streams.session.commands import Command, Kind, Report
from streams.session.dead_letters import DeadLetter
from streams.session.events import FAMILIES, Attributes, Content, Draft, Event, KeyReference, Link, family_of
from streams.session.outcomes import Outcome
from streams.session.vocabulary import DIGEST_BYTES

_PLAIN_FAMILIES: Final = frozenset({"message", "source", "tool", "artifact"})
"""Families whose attributes no rule of a session looks at."""
_LAST: Final = ("\x00", "\x01")
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
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            # A value of another type than its field's, or text that is not Unicode. What the error says may be personal.
            raise Invalid(type(error).__name__) from error

    return write


@cache
def _shaped() -> bool:
    """Whether the shapes are those of the versions that are written now."""
    return all(codec.is_current(subject, 1) for subject in ("command", "draft", "suffix", "event"))


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
    usual = written_attributes(event_type, attributes)
    if usual is not None:
        return usual
    name = vocabulary.misplaced_attribute(event_type, attributes)
    if name is not None:
        raise Invalid(f"{name} of {event_type}")
    return codec.encode(SUBJECTS[family_of(event_type)], msgspec.structs.asdict(attributes))


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
    attributes = encode_attributes(draft.type, draft.attributes)
    usual = write_draft(draft, attributes) if _shaped() else None
    if usual is not None:
        return usual
    name = vocabulary.misplaced(draft)
    if name is not None:
        raise Invalid(name)
    record = {field: getattr(draft, field) for field in Draft.__struct_fields__}
    record["links"] = [{"relation": link.relation, "id": link.id} for link in draft.links]
    record["attributes"] = attributes
    record["content"] = msgspec.to_builtins(draft.content, builtin_types=(bytes,))
    return codec.encode_body("draft", record)


def decode_draft(body: bytes, *, attributes: bool = True) -> Draft:
    """As `decode_draft_raw`, without the bytes of the attributes."""
    return decode_draft_raw(body, attributes=attributes)[0]


@_reads
def decode_draft_raw(body: bytes, *, attributes: bool = True) -> tuple[Draft, bytes | None]:
    """A draft and the bytes of its attributes. With `attributes=False`, the record lacks those that no rule looks at; they
    are judged all the same. Raises `RecordUnreadable`."""
    read = read_draft(body, body.decode("latin-1"), 0, usual_attributes) if _shaped() else None
    usual = read is not None and read.end == len(body)
    draft, raw = (read.draft, read.attributes) if read is not None and usual else _draft(codec.decode_body("draft", body))
    return draft if attributes else _without_plain(draft), raw


def _without_plain(draft: Draft) -> Draft:
    return msgspec.structs.replace(draft, attributes=None) if family_of(draft.type) in _PLAIN_FAMILIES else draft


def _draft(record: dict[str, Any]) -> tuple[Draft, bytes | None]:
    raw = _complete(record)
    draft = Draft(**record)
    _refuse(vocabulary.misplaced(draft))
    if draft.attributes is not None:
        _refuse(vocabulary.misplaced_attribute(draft.type, draft.attributes))
    return draft, raw


def _complete(record: dict[str, Any]) -> bytes | None:
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
        if codec.subject_of(raw) != SUBJECTS.get(family):
            raise codec.Undecodable("wire.subject", "attributes are not of the type's family")
        record["attributes"] = _attributes(raw)
    return raw


# -- commands ---------------------------------------------------------------------------------------------------------


@_writes
def encode_command(command: Command, drafts: Sequence[bytes] | None = None) -> bytes:
    """A whole value. `drafts` are the bodies of the command's drafts, where they are at hand. Raises `Invalid`."""
    bodies = [encode_draft(draft) for draft in command.drafts] if drafts is None else drafts
    usual = write_command(command, bodies) if _shaped() else None
    if usual is not None:
        return codec.header("command") + usual
    name = _misplaced(command)
    if name is not None:
        raise Invalid(name)
    record = {field: getattr(command, field) for field in Command.__struct_fields__}
    record["kind"] = command.kind.value
    record["report"] = None if command.report is None else msgspec.structs.asdict(command.report)
    record["drafts"] = bodies
    return codec.encode("command", record)


def decode_command(value: bytes) -> Command:
    """Raises `RecordUnreadable`."""
    return decode_command_parts(value)[0]


@_reads
def decode_command_parts(value: bytes, *, attributes: bool = True) -> tuple[Command, tuple[RawDraft, ...]]:
    """A command, and the bytes of its drafts as its events will hold them; `attributes` as in `decode_draft_raw`. Raises
    `RecordUnreadable`."""
    header = codec.header("command")
    read = read_command(value, len(header), usual_attributes) if _shaped() and value.startswith(header) else None
    if read is None:
        command, parts = _command(value)
    else:
        command, parts = read.command, tuple([RawDraft(value[at:end], raw) for at, (_, raw, end) in read.drafts])
    if not attributes:
        command = msgspec.structs.replace(command, drafts=tuple([_without_plain(draft) for draft in command.drafts]))
    return command, parts


def _command(value: bytes) -> tuple[Command, tuple[RawDraft, ...]]:
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
        draft, attributes = _draft(fields)
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
    """A whole value: the draft's bytes as they are, and what the authority adds. Raises `Invalid`."""
    if len(previous_hash) != DIGEST_BYTES or len(hash) != DIGEST_BYTES:
        raise Invalid(f"hash: {DIGEST_BYTES} bytes")
    if not _shaped():
        fields = {"sequence": sequence, "command_offset": command_offset, "command_last": command_last, "accepted_at": accepted_at}
        return codec.header("event") + draft_body + codec.encode_body("suffix", fields | {"previous_hash": previous_hash, "hash": hash})
    added = f"{long_text(sequence)}{long_text(command_offset)}{_LAST[command_last]}{long_text(accepted_at)}@"
    return b"".join((codec.header("event"), draft_body, added.encode("latin-1"), previous_hash, b"@", hash))


def decode_event(value: bytes) -> Event:
    """Raises `RecordUnreadable`."""
    return decode_event_raw(value)[0]


@_reads
def decode_event_raw(value: bytes) -> tuple[Event, bytes | None]:
    """An event and the bytes of its attributes, from which its hash is recomputed. Raises `RecordUnreadable`."""
    header = codec.header("event")
    read = read_event(value, len(header), usual_attributes) if _shaped() and value.startswith(header) else None
    return read or _event(value)


def _event(value: bytes) -> tuple[Event, bytes | None]:
    record = codec.decode_as("event", value)
    raw = _complete(record)
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
    return encode_addressed(reply_to, [told(outcome).addressed(outcome) for outcome in outcomes])


def encode_addressed(reply_to: str, outcomes: Sequence[bytes]) -> bytes:
    """As `encode_outcomes`, of outcomes that are written already (`streams.log.outcomes.Told.addressed`)."""
    return codec.header("outcomes") + written_batch(reply_to, outcomes)


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
