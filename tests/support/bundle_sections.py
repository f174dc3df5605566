"""What a bundle's sections have to be, written from docs/bundle.md, section 4, and from nothing that makes them."""

from collections.abc import Iterable, Mapping
from typing import Any

from session_streams.export import Entry

OF_FAMILIES: Mapping[str, str] = {
    "attempt": "work", "checkpoint": "work", "child": "work", "effect": "work", "run": "work", "thread": "work", "turn": "work",
    "approval": "interactions", "steering": "interactions", "wait": "interactions", "context": "context-snapshots",
    "artifact": "artifacts", "capsule": "continuation-capsules",
}  # fmt: skip
NOT_INCLUDED = {
    "checkpoint": "recovery_material_not_included", "context": "bytes_not_held", "artifact": "bytes_not_held",
    "capsule": "private_material_sealed",
}  # fmt: skip
IDS = ("thread_id", "turn_id", "run_id", "attempt_generation", "actor_id")
BEHIND_EVENTS = ("actors", "work", "interactions", "context-snapshots", "artifacts", "continuation-capsules")


def expected(entries: Iterable[Entry]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]:
    """Items and gaps of each section but the events' items."""
    items: dict[str, dict[tuple[str, str], dict[str, Any]]] = {name: {} for name in BEHIND_EVENTS}
    gaps: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in ("events", *BEHIND_EVENTS)}
    source: list[dict[str, Any]] = []
    for entry in entries:
        if entry.type is None:
            for found in gaps.values():
                _lacks(found, "missing", entry.sequence)
            continue
        family = entry.type.split(".")[0]
        section = OF_FAMILIES.get(family)
        for name in ("events", section):
            if name is not None and entry.unavailable is not None:
                _lacks(gaps[name], entry.unavailable, entry.sequence)
        place = {"sequence": entry.sequence, "type": entry.type, "hash": entry.fields["hash"]}
        for kind in ("actor", "subject"):
            if entry.fields[f"{kind}_id"] is not None:
                _tells(items["actors"], (kind, entry.fields[f"{kind}_id"]), place)
        if section is not None:
            _tells(items[section], _object(entry, family), {**place, **_said(entry)})
        if entry.sequence == 1 and entry.attributes.get("source_session_id") is not None:
            told = entry.attributes
            source = [{"reason": "in_source_session", "session_id": told["source_session_id"]}]
            source[0] |= {name: told[name] for name in ("through_sequence", "source_hash") if _exact(told.get(name))}
    named = {name: list(of.values()) for name, of in items.items()}
    return named, {name: _gaps(name, of, source, named.get(name)) for name, of in gaps.items()}


def _gaps(
    name: str, lacking: Mapping[str, dict[str, Any]], source: list[dict[str, Any]], items: list[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    found = [*lacking.values(), *source]
    if items == []:
        found.append({"reason": "none_found" if source or "missing" in lacking else "none_recorded"})
    for kind, reason in NOT_INCLUDED.items():
        count = sum(item["kind"] == kind for item in items or ())
        if count:
            found.append({"reason": reason, "count": count})
    return sorted(found, key=lambda gap: str(gap["reason"]))


def _lacks(found: dict[str, dict[str, Any]], reason: str, sequence: int) -> None:
    gap = found.setdefault(reason, {"reason": reason, "count": 0, "first_sequence": sequence})
    gap.update(count=gap["count"] + 1, last_sequence=sequence)


def _tells(items: dict[tuple[str, str], dict[str, Any]], of: tuple[str, str], fact: dict[str, Any]) -> None:
    item = items.setdefault(of, {"kind": of[0], "id": of[1], "facts": 0, "first": fact})
    item.update(facts=item["facts"] + 1, latest=fact)


def _object(entry: Entry, family: str) -> tuple[str, str]:
    fields, named = entry.fields, None
    if family in ("thread", "turn", "run"):
        named = fields[f"{family}_id"]
    elif family == "attempt" and None not in (fields["run_id"], fields["attempt_generation"]):
        named = f"{fields['run_id']}#{fields['attempt_generation']}"
    elif entry.type in ("capsule.imported", "capsule.decided"):
        family, named = "import", entry.attributes.get("import_id")
    elif family in ("approval", "artifact", "capsule", "checkpoint", "child", "effect", "wait"):
        named = entry.attributes.get(f"{family}_id")
    return family, str(named or fields["event_id"])


def _said(entry: Entry) -> dict[str, Any]:
    fields = entry.fields
    said: dict[str, Any] = {name: fields[name] for name in IDS if _exact(fields[name])}
    if fields["links"]:
        said["links"] = fields["links"]
    if fields["attributes"] is not None:
        said["attributes"] = {name: value for name, value in entry.attributes.items() if _exact(value)}
    return said


def _exact(value: object) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int) and abs(value) < 2**53)
