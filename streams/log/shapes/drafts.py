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
    is_usual,
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

_MOST_LINKS: Final = 31

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
            # At most `_MOST_LINKS`, in one block whose count takes one byte.
            rf"(?:\x00|([\x02-\x3e])((?:{_ONE_LINK}){{1,{_MOST_LINKS}}})\x00)",
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
_PLAIN: Final = {NONE: f"\x08{NONE}\0\0\0".encode(), OMITTED: f"\x0e{OMITTED}\0\0\0".encode()}
_DIGEST: Final = b"\x02" + long_text(DIGEST_BYTES).encode("latin-1")
_DIGEST_END: Final = len(_DIGEST) + DIGEST_BYTES

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
    if kind is None or not is_usual(occurred_at) or not is_usual(generation) or len(draft.links) > _MOST_LINKS:
        return None
    generation_text = None if generation is None else long_text(generation)
    occurred_text = None if occurred_at is None else long_text(occurred_at)
    listed = None if not draft.links else "".join([f"{_sized(link.relation)}{_sized(link.id)}" for link in draft.links])
    head = "".join(
        (
            f"H{draft.event_id}J{draft.session_id}{kind}F{draft.workspace_id}",
            _nullable("\x02J", draft.thread_id),
            _nullable("\x02J", draft.turn_id),
            _nullable("\x02H", draft.run_id),
            _nullable("\x02", generation_text),
            _nullable("\x02J", draft.native_task_id),
            _nullable("\x02J", draft.actor_id),
            _nullable("\x02J", draft.subject_id),
            f"H{draft.command_id}",
            _nullable("\x02", occurred_text),
            "\x00" if listed is None else f"{chr(2 * len(draft.links))}{listed}\x00",
            "\x00" if attributes is None else f"\x02{long_text(len(attributes))}",
        )
    )
    match = _HEAD.fullmatch(head)
    told = _told(draft.content, draft.session_id)
    # Text may hold anything, a field's ends among it: each must be found where it was put.
    if match is None or told is None or match.groups()[:15] != (
        draft.event_id, draft.session_id, kind, draft.workspace_id, draft.thread_id, draft.turn_id, draft.run_id, generation_text,
        draft.native_task_id, draft.actor_id, draft.subject_id, draft.command_id, occurred_text,
        None if listed is None else chr(2 * len(draft.links)), listed,
    ):  # fmt: skip
        return None
    if listed is not None and _links(chr(2 * len(draft.links)), listed) != draft.links:
        return None
    return b"".join((head.encode("latin-1"), attributes or b"", *told))


def _told(content: Content, session_id: str) -> tuple[bytes, ...] | None:
    """The bytes of a content, if it is well-formed."""
    reference, ciphertext, digest = content.key_reference, content.ciphertext, content.digest
    if content.state != SEALED:
        plain = _PLAIN.get(content.state)
        return (plain,) if plain is not None and (reference, ciphertext, digest) == (None, None, None) else None
    if reference is None or ciphertext is None or digest is None or len(digest) != DIGEST_BYTES or len(ciphertext) < SHORTEST_CIPHERTEXT:
        return None
    subject_id, day = reference.subject_id, reference.expiry_day
    told = f"\x0c{SEALED}\x02{_nullable(f'{chr(2)}J', subject_id)}J{reference.session_id}\x14{day}\x02{long_text(len(ciphertext))}"
    match = _CONTENT.fullmatch(told)
    if match is None or reference.session_id != session_id or match.groups()[:3] != (subject_id, session_id, day):
        return None
    return told.encode("latin-1"), ciphertext, _DIGEST, digest


def _links(count: str, listed: str) -> tuple[Link, ...] | None:
    """None where a length, or the count, is not that of what follows it."""
    links = []
    for relation_size, relation, id_size, linked in _LINK.findall(listed):
        if ord(relation_size) != 2 * len(relation) or ord(id_size) != 2 * len(linked):
            return None
        links.append(Link(relation, linked))
    return tuple(links) if ord(count) == 2 * len(links) else None


def _sized(value: str) -> str:
    """A string, if it is of ASCII; what else it is made into has no shape."""
    return long_text(len(value)) + value


def _nullable(before: str, value: str | None) -> str:
    return "\x00" if value is None else before + value
