"""Which schema a number means: the published files of this folder, and the numbers that stand in front of every value.

Rules: a subject is the stem of its file ("event", "attributes/message"); a published file is never edited, a change is a
new file `<subject>.v<n+1>.avsc`; a number, once given, means one file for ever (`registry.json` is append-only and
holds the digest of each file). `python -m schemas.catalog` gives numbers to files that have none.

Called by `schemas.codec`, by the tests, and by hand when a schema is published.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

FOLDER: Final = Path(__file__).parent
_FILE: Final = re.compile(r"(?P<subject>[a-z]+(?:[-/][a-z]+)*)\.v(?P<version>[1-9][0-9]*)\.avsc")


@dataclass(frozen=True)
class Published:
    """One version of one subject. `schema` is the parsed JSON of its file, as published."""

    id: int
    subject: str
    version: int
    schema: Mapping[str, Any]


class UnknownSchema(LookupError):
    """No schema is published under this number, or under this subject and version."""


class Registry(Protocol):
    """Where schemas are looked up. Answers never change, so callers may keep them for ever."""

    def schema_by_id(self, schema_id: int) -> Published:
        """Raises `UnknownSchema`."""

    def id_of(self, subject: str, version: int) -> int:
        """Raises `UnknownSchema`."""

    def current_version(self, subject: str) -> int:
        """The version that this code reads into and writes. Raises `UnknownSchema`."""


class FileRegistry:
    """The schemas of a folder with its `registry.json`: the default, and what the code is tested against."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._by_id: dict[int, Published] = {}
        self._ids: dict[tuple[str, int], int] = {}
        self._current: dict[str, int] = {}
        for entry in _entries(folder):
            subject, version, schema_id = entry["subject"], entry["version"], entry["id"]
            schema = json.loads((folder / file_name(subject, version)).read_text(encoding="utf-8"))
            self._by_id[schema_id] = Published(schema_id, subject, version, schema)
            self._ids[subject, version] = schema_id
            self._current[subject] = max(version, self._current.get(subject, 0))

    def schema_by_id(self, schema_id: int) -> Published:
        try:
            return self._by_id[schema_id]
        except KeyError:
            raise UnknownSchema(f"schema id {schema_id}") from None

    def id_of(self, subject: str, version: int) -> int:
        try:
            return self._ids[subject, version]
        except KeyError:
            raise UnknownSchema(f"{subject} v{version}") from None

    def current_version(self, subject: str) -> int:
        try:
            return self._current[subject]
        except KeyError:
            raise UnknownSchema(subject) from None

    def published(self) -> tuple[Published, ...]:
        """Every version of every subject, in the order of publication."""
        return tuple(self._by_id.values())


def file_name(subject: str, version: int) -> str:
    return f"{subject}.v{version}.avsc"


def digest(schema: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the schema as JSON with sorted keys and no spaces: docs and defaults count, layout does not."""
    return hashlib.sha256(json.dumps(schema, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def edited(folder: Path = FOLDER) -> list[str]:
    """Published files that are no longer what was published, or are gone."""
    return [
        name
        for entry in _entries(folder)
        for name in (file_name(entry["subject"], entry["version"]),)
        if not (folder / name).exists() or digest(json.loads((folder / name).read_text(encoding="utf-8"))) != entry["digest"]
    ]


def publish(folder: Path = FOLDER) -> list[str]:
    """Gives the next numbers to the files that have none, in order of version and name. Returns their names."""
    entries = _entries(folder)
    known = {(entry["subject"], entry["version"]) for entry in entries}
    new = sorted(set(_files(folder)) - known, key=lambda key: (key[1], key[0]))
    for schema_id, (subject, version) in enumerate(new, start=max((entry["id"] for entry in entries), default=0) + 1):
        schema = json.loads((folder / file_name(subject, version)).read_text(encoding="utf-8"))
        entries.append({"id": schema_id, "subject": subject, "version": version, "digest": digest(schema)})
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    (folder / "registry.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return [file_name(*key) for key in new]


def _entries(folder: Path) -> list[dict[str, Any]]:
    path = folder / "registry.json"
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return entries


def _files(folder: Path) -> Iterable[tuple[str, int]]:
    for path in folder.rglob("*.avsc"):
        match = _FILE.fullmatch(path.relative_to(folder).as_posix())
        if match is None:
            raise ValueError(f"{path}: expected <subject>.v<version>.avsc")
        yield match["subject"], int(match["version"])


if __name__ == "__main__":
    changed = edited()
    if changed:
        sys.exit(f"published schemas must not change: {', '.join(changed)}")
    print("\n".join(f"published {name}" for name in publish()) or "nothing to publish")
