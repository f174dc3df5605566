"""The sections of a Session Bundle that follow from its events: one item for each object that they tell of, with its gaps.

- An item says how many events tell of its object, and what the first and the latest of them say. Nothing in it is content.
- All of it is a function of the lines of the export: the same lines give the same items, byte for byte (docs/bundle.md, section 4).
- They wait in `Scratch` until the events are through, so that a bounded number of bytes is held.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from streams.exports.scratch import Scratch

EVENTS: Final = "events"
ACTORS: Final = "actors"
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "work": ("attempt", "checkpoint", "child", "effect", "run", "thread", "turn"),
    "interactions": ("approval", "steering", "wait"),
    "context-snapshots": ("context",),
    "artifacts": ("artifact",),
    "continuation-capsules": ("capsule",),
}
"""The families of events that each section is made of."""
NAMES: Final = (EVENTS, ACTORS, *FAMILIES)

_SECTION_OF: Final = {family: section for section, families in FAMILIES.items() for family in families}
_NAMED_BY: Final = {
    "approval": "approval_id", "artifact": "artifact_id", "capsule": "capsule_id", "checkpoint": "checkpoint_id", "child": "child_id",
    "effect": "effect_id", "import": "import_id", "wait": "wait_id",
}  # fmt: skip
_NOT_INCLUDED: Final = {
    "checkpoint": "recovery_material_not_included",
    "context": "bytes_not_held",
    "artifact": "bytes_not_held",
    "capsule": "private_material_sealed",
}
"""What a reader might look for beside an item, and does not find in any bundle, or in none that it opens in."""
_EXACT_MAX: Final = 2**53 - 1

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
"""The spelling of RFC 8785 for what stands here: names in ASCII, and no fraction. By the encoder in C, since it is asked for each event."""


class _Attributes(Struct, frozen=True, gc=False):
    decoded: msgspec.Raw


class _Line(Struct, frozen=True, gc=False):
    """What is read of a position."""

    kind: str
    sequence: int
    reason: str | None = None
    event_id: str = ""
    type: str = ""
    workspace_id: str = ""
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    attempt_generation: int | None = None
    actor_id: str | None = None
    subject_id: str | None = None
    links: tuple[dict[str, Any], ...] = ()
    attributes: _Attributes | None = None
    hash: str | None = None


class Gap(Struct, kw_only=True, omit_defaults=True, gc=False):
    """Why something is not in a section: of positions, of material, or of all that stands in the session that this one is forked from."""

    reason: str
    count: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    session_id: str | None = None
    through_sequence: int | None = None
    source_hash: str | None = None


class Sections:
    """`add` the lines of all positions, in order; then ask for `items`, and behind them for `gaps`. Close it in the end.

    Raises OSError and `sqlite3.Error` where there is no room for what waits in `folder`, and where it is closed. Closing waits for a
    step that is running in another thread.
    """

    def __init__(self, folder: Path) -> None:
        self.workspace_id: str | None = None
        self.end_sequence = 0
        self.last_hash: str | None = None
        self._decoder = msgspec.json.Decoder(_Line)
        self._scratch = Scratch(folder)
        self._counts: dict[str, Counter[str]] = {EVENTS: Counter()}
        self._gaps: dict[tuple[str, str], Gap] = {}
        self._source: Gap | None = None

    def add(self, text: bytes) -> None:
        line = self._decoder.decode(text)
        sequence = line.sequence
        self.end_sequence, self.last_hash = sequence, line.hash
        if line.kind == "missing":
            for each in NAMES:
                self._gap(each, "missing", sequence)
            return
        self.workspace_id = self.workspace_id or line.workspace_id
        family = line.type.partition(".")[0]
        section = _SECTION_OF.get(family)
        if line.reason is not None:
            self._gap(EVENTS, line.reason, sequence)
            if section is not None:
                self._gap(section, line.reason, sequence)
        place: dict[str, Any] = {"sequence": sequence, "type": line.type, "hash": line.hash}
        found = _encode(place).encode()
        if line.actor_id is not None:
            self._scratch.tell(ACTORS, "actor", line.actor_id, sequence, found)
        if line.subject_id is not None:
            self._scratch.tell(ACTORS, "subject", line.subject_id, sequence, found)
        if section is not None or sequence == 1:
            told: dict[str, Any] = {} if line.attributes is None else json.loads(bytes(line.attributes.decoded))
            if section is not None:
                self._scratch.tell(section, *_named(line, family, told), sequence, _encode(place | _told(line, told)).encode())
            elif told.get("source_session_id") is not None:
                through = told.get("through_sequence")
                self._source = Gap(
                    reason="in_source_session", session_id=told["source_session_id"],
                    through_sequence=through if _is_exact(through) else None, source_hash=told.get("source_hash"),
                )  # fmt: skip

    def items(self, section: str) -> Iterator[bytes]:
        """Its lines, ordered by the first event of each object."""
        counts = self._counts[section] = Counter()
        for item in self._scratch.items(section):
            counts[item.kind] += 1
            # The members of all parts are sorted, and so are these.
            named = _encode(item.named).encode()
            yield b'{"facts":%d,"first":%b,"id":%b,"kind":"%b","latest":%b}\n' % (
                item.facts, item.first, named, item.kind.encode(), item.latest,
            )  # fmt: skip

    def gaps(self, section: str) -> list[Gap]:
        """By reason. Of a section whose items were read to the end, or of the events."""
        found = [gap for (of, _), gap in self._gaps.items() if of == section]
        if self._source is not None:
            found.append(self._source)
        counts = self._counts[section]
        if not counts and section != EVENTS:
            # Of a position that is missing, or that stands in another session, nobody knows here what it told.
            whole = self._source is None and (EVENTS, "missing") not in self._gaps
            found.append(Gap(reason="none_recorded" if whole else "none_found"))
        found += [Gap(reason=reason, count=counts[kind]) for kind, reason in _NOT_INCLUDED.items() if kind in counts]
        return sorted(found, key=lambda gap: gap.reason)

    def close(self) -> None:
        self._scratch.close()

    def _gap(self, section: str, reason: str, sequence: int) -> None:
        gap = self._gaps.get((section, reason))
        if gap is None:
            self._gaps[section, reason] = Gap(reason=reason, count=1, first_sequence=sequence, last_sequence=sequence)
        else:
            gap.count, gap.last_sequence = (gap.count or 0) + 1, sequence


def _named(line: _Line, family: str, told: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and id of the object; the event's own id where it names none."""
    match family:
        case "thread":
            found = line.thread_id
        case "turn":
            found = line.turn_id
        case "run":
            found = line.run_id
        case "attempt":
            whole = line.run_id is not None and line.attempt_generation is not None
            found = f"{line.run_id}#{line.attempt_generation}" if whole else None
        case _:
            family = "import" if line.type in ("capsule.imported", "capsule.decided") else family
            found = told.get(_NAMED_BY.get(family, ""))
    return family, found or line.event_id


def _told(line: _Line, told: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is null, and without what not every reader of JSON takes for the same: fractions, and numbers beyond 2^53 - 1."""
    ids = {
        "thread_id": line.thread_id, "turn_id": line.turn_id, "run_id": line.run_id, "attempt_generation": line.attempt_generation,
        "actor_id": line.actor_id,
    }  # fmt: skip
    found: dict[str, Any] = {name: value for name, value in ids.items() if _is_exact(value)}
    if line.links:
        found["links"] = line.links
    if line.attributes is not None:
        found["attributes"] = {name: value for name, value in told.items() if _is_exact(value)}
    return found


def _is_exact(value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) <= _EXACT_MAX)
