"""The sections of a Session Bundle that follow from its events: one item for each object that they tell of, with its gaps.

- An item says how many events tell of its object, and what the first and the latest of them say. Nothing in it is content.
- All of it is a function of the lines of the export: the same lines give the same items, byte for byte (docs/bundle.md, section 4).
- Held are a bounded number of items; the others wait in a file without a name, which has structure only.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec
from msgspec import Struct

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
    "capsule": "private_material_not_included",
}
"""What a reader might look for beside an item, and does not find in any bundle."""
_EXACT_MAX: Final = 2**53 - 1
_HELD: Final = 20_000

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


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
    links: tuple[msgspec.Raw, ...] = ()
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


class _Held(Struct):
    facts: int
    first_sequence: int
    first: Mapping[str, Any]
    latest: Mapping[str, Any]


class Sections:
    """`add` the lines of all positions, in order. Close it in the end."""

    def __init__(self) -> None:
        self.workspace_id: str | None = None
        self.end_sequence = 0
        self.last_hash: str | None = None
        self._decoder = msgspec.json.Decoder(_Line)
        self._rows = sqlite3.connect("", check_same_thread=False)
        self._rows.execute(
            "CREATE TABLE item (section TEXT, kind TEXT, id TEXT, facts INTEGER, sequence INTEGER, first TEXT, latest TEXT,"
            " PRIMARY KEY (section, kind, id)) WITHOUT ROWID"
        )
        self._held: dict[tuple[str, str, str], _Held] = {}
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
        if line.actor_id is not None:
            self._fact(ACTORS, "actor", line.actor_id, place)
        if line.subject_id is not None:
            self._fact(ACTORS, "subject", line.subject_id, place)
        if section is not None or sequence == 1:
            told: dict[str, Any] = {} if line.attributes is None else json.loads(bytes(line.attributes.decoded))
            if section is not None:
                self._fact(section, *_named(line, family, told), place | _told(line, told))
            elif told.get("source_session_id") is not None:
                self._source = Gap(
                    reason="in_source_session", session_id=told["source_session_id"],
                    through_sequence=told.get("through_sequence"), source_hash=told.get("source_hash"),
                )  # fmt: skip

    def items(self, section: str) -> Iterator[bytes]:
        """Its lines, ordered by the first event of each object."""
        self._write()
        asked = "SELECT kind, id, facts, first, latest FROM item WHERE section = ? ORDER BY sequence, kind, id"
        with closing(self._rows.execute(asked, (section,))) as rows:
            for kind, named, facts, first, latest in rows:
                # The members of all parts are sorted, and so are these.
                yield f'{{"facts":{facts},"first":{first},"id":{_encode(named)},"kind":"{kind}","latest":{latest}}}\n'.encode()

    def gaps(self, section: str) -> list[Gap]:
        """By reason."""
        self._write()
        found = [gap for (of, _), gap in self._gaps.items() if of == section]
        if self._source is not None:
            found.append(self._source)
        counts = dict(self._rows.execute("SELECT kind, count(*) FROM item WHERE section = ? GROUP BY kind", (section,)))
        if not counts and section != EVENTS:
            found.append(Gap(reason="none_recorded"))
        found += [Gap(reason=reason, count=counts[kind]) for kind, reason in _NOT_INCLUDED.items() if kind in counts]
        return sorted(found, key=lambda gap: gap.reason)

    def close(self) -> None:
        self._rows.close()

    def _gap(self, section: str, reason: str, sequence: int) -> None:
        gap = self._gaps.get((section, reason))
        if gap is None:
            self._gaps[section, reason] = Gap(reason=reason, count=1, first_sequence=sequence, last_sequence=sequence)
        else:
            gap.count, gap.last_sequence = (gap.count or 0) + 1, sequence

    def _fact(self, section: str, kind: str, named: str, fact: Mapping[str, Any]) -> None:
        held = self._held.get((section, kind, named))
        if held is not None:
            held.facts, held.latest = held.facts + 1, fact
            return
        self._held[section, kind, named] = _Held(1, fact["sequence"], fact, fact)
        if len(self._held) >= _HELD:
            self._write()

    def _write(self) -> None:
        rows = ((*key, held.facts, held.first_sequence, _encode(held.first), _encode(held.latest)) for key, held in self._held.items())
        self._rows.executemany(
            "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET facts = facts + excluded.facts, latest = excluded.latest",
            rows,
        )
        self._held.clear()


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
        found["links"] = [json.loads(bytes(link)) for link in line.links]
    if line.attributes is not None:
        found["attributes"] = {name: value for name, value in told.items() if _is_exact(value)}
    return found


def _is_exact(value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) <= _EXACT_MAX)
