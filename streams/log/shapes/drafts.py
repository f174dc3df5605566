"""Drafts: the head up to the attributes, the attributes' bytes, the content."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from schemas.primitives import LONG, long_of, long_text, text
from streams.log.shapes.patterns import (
    A_LONG,
    ACTOR,
    COMMAND,
    EVENT,
    RUN,
    SESSION,
    SUBJECT,
    TASK,
    THREAD,
    TURN,
    WORKSPACE,
    optional,
)
from streams.session import vocabulary
from streams.session.events import NO_CONTENT, NONE, OMITTED, SEALED, TYPES, Attributes, Content, Draft, KeyReference, Link
from streams.session.vocabulary import DIGEST_BYTES, SHORTEST_CIPHERTEXT, pattern_of

_ONE_LINK: Final = rf"[\x02-\x7e](?:{'|'.join(sorted(vocabulary.RELATIONS))})[\x02-\x7e](?:{pattern_of(vocabulary.ANY_ID)})"
_LINK: Final = re.compile(
    rf"([\x02-\x7e])({'|'.join(sorted(vocabulary.RELATIONS))})([\x02-\x7e])({pattern_of(vocabulary.ANY_ID)})", re.DOTALL
)
_TYPES: Final = {text(event_type): event_type for event_type in TYPES}
_WRITTEN: Final = {event_type: written for written, event_type in _TYPES.items()}

_HEAD: Final = re.compile(
    "".join(
        (
            EVENT,
            SESSION,
            r"([\x02-\x7e][a-z_.]+)",
            WORKSPACE,
            optional(THREAD),
            optional(TURN),
            optional(RUN),
            optional(A_LONG),
            optional(TASK),
            optional(ACTOR),
            optional(SUBJECT),
            COMMAND,
            optional(A_LONG),
            # At most 31 links, in one block whose count takes one byte.
            rf"(?:\x00|([\x02-\x3e])((?:{_ONE_LINK})+)\x00)",
            optional(A_LONG),
        )
    ),
    re.DOTALL,
)
"""Up to the length of the attributes."""
_CONTENT: Final = re.compile(
    rf"\x0c{SEALED}\x02{optional(SUBJECT)}{SESSION}\x14({pattern_of(vocabulary.DAY)})\x02({LONG})|(\x08{NONE}|\x0e{OMITTED})\x00\x00\x00",
    re.DOTALL,
)
"""Sealed, up to the length of the ciphertext; or none."""
_NONE: Final = {f"\x08{NONE}": NO_CONTENT, f"\x0e{OMITTED}": Content(OMITTED)}
_DIGEST: Final = b"\x02" + long_text(DIGEST_BYTES).encode("latin-1")
_DIGEST_END: Final = len(_DIGEST) + DIGEST_BYTES
_WIDEST: Final = 1 << 62


AttributesOf = Callable[[str, bytes], Attributes | None]
"""From a type of event and bytes: the attributes, if they are as usual."""


class ReadDraft(NamedTuple):
    """A draft, the bytes of its attributes, and the offset behind it."""

    draft: Draft
    attributes: bytes | None
    end: int


def read_draft(value: bytes, characters: str, start: int, attributes_of: AttributesOf) -> ReadDraft | None:
    """The draft at `start` of `value`, whose characters in Latin-1 are `characters`."""
    match = _HEAD.match(characters, start)
    if match is None:
        return None
    event, session, kind, workspace, thread, turn, run, generation, task, actor, subject, command, occurred, count, listed, size = (
        match.groups()
    )
    event_type = _TYPES.get(kind)
    links: tuple[Link, ...] | None = () if listed is None else _links(count, listed)
    if event_type is None or links is None:
        return None
    at = match.end()
    raw = attributes = None
    if size is not None:
        length = long_of(size)
        raw = value[at : at + length]
        at += length
        attributes = attributes_of(event_type, raw)
        if attributes is None or len(raw) != length:
            return None
    match = _CONTENT.match(characters, at)
    if match is None:
        return None
    about, place, day, size, none = match.groups()
    at = match.end()
    if none is not None:
        content = _NONE[none]
    else:
        length = long_of(size)
        ciphertext = value[at : at + length]
        at += length
        digest = value[at : at + _DIGEST_END]
        if len(digest) != _DIGEST_END or not digest.startswith(_DIGEST) or length < SHORTEST_CIPHERTEXT or place != session:
            return None
        at += _DIGEST_END
        content = Content(SEALED, KeyReference(about, place, day), ciphertext, digest[2:])
    draft = Draft(
        event_id=event, session_id=session, type=event_type, workspace_id=workspace, thread_id=thread, turn_id=turn, run_id=run,
        attempt_generation=None if generation is None else long_of(generation), native_task_id=task, actor_id=actor, subject_id=subject,
        command_id=command, occurred_at=None if occurred is None else long_of(occurred), links=links, attributes=attributes,
        content=content,
    )  # fmt: skip
    return ReadDraft(draft, raw, at)


def write_draft(draft: Draft, attributes: bytes | None) -> bytes | None:
    """The body of a draft with these bytes as its attributes, if it is well-formed and nothing of it is unusual."""
    kind = _WRITTEN.get(draft.type)
    occurred_at, generation = draft.occurred_at, draft.attempt_generation
    if kind is None or not _is_long(occurred_at) or not _is_long(generation) or len(draft.links) > 31:
        return None
    head = "".join(
        (
            f"H{draft.event_id}J{draft.session_id}{kind}F{draft.workspace_id}",
            _nullable("\x02J", draft.thread_id),
            _nullable("\x02J", draft.turn_id),
            _nullable("\x02H", draft.run_id),
            "\x00" if generation is None else f"\x02{long_text(generation)}",
            _nullable("\x02J", draft.native_task_id),
            _nullable("\x02J", draft.actor_id),
            _nullable("\x02J", draft.subject_id),
            f"H{draft.command_id}",
            "\x00" if occurred_at is None else f"\x02{long_text(occurred_at)}",
            _written_links(draft.links),
            "\x00" if attributes is None else f"\x02{long_text(len(attributes))}",
        )
    )
    content, reference = draft.content, draft.content.key_reference
    digest = content.digest
    if content.state == SEALED and reference is not None and content.ciphertext is not None and digest is not None:
        told = f"\x0c{SEALED}\x02{_nullable(f'{chr(2)}J', reference.subject_id)}J{reference.session_id}\x14{reference.expiry_day}\x02"
        tail = (content.ciphertext, _DIGEST, digest)
        told += long_text(len(content.ciphertext))
    else:
        told, tail = f"{text(content.state)}\x00\x00\x00", (b"", b"", b"")
    try:
        body = b"".join((head.encode("latin-1"), attributes or b"", told.encode("latin-1"), *tail))
    except UnicodeEncodeError:
        return None
    # Only what reads back as the same is well-formed: text may hold anything, a field's ends among it.
    read = read_draft(body, body.decode("latin-1"), 0, lambda _, raw: draft.attributes if raw == attributes else None)
    return body if read is not None and read.end == len(body) and read.draft == draft else None


def _links(count: str, listed: str) -> tuple[Link, ...] | None:
    links = []
    for relation_size, relation, id_size, linked in _LINK.findall(listed):
        if ord(relation_size) != 2 * len(relation) or ord(id_size) != 2 * len(linked):
            return None
        links.append(Link(relation, linked))
    return tuple(links) if ord(count) == 2 * len(links) else None


def _written_links(links: tuple[Link, ...]) -> str:
    if not links:
        return "\x00"
    return "".join((long_text(len(links)), *[f"{text(link.relation)}{text(link.id)}" for link in links], "\x00"))


def _nullable(before: str, value: str | None) -> str:
    return "\x00" if value is None else before + value


def _is_long(value: int | None) -> bool:
    return value is None or (type(value) is int and -_WIDEST <= value < _WIDEST)
