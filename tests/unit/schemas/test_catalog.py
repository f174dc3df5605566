"""What was published stays what it was: files, numbers and digests."""

import json
import shutil
from pathlib import Path

import pytest

from schemas import catalog
from schemas.catalog import FileRegistry, UnknownSchema


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the published schemas."""
    return Path(shutil.copytree(catalog.FOLDER, tmp_path / "schemas", ignore=shutil.ignore_patterns("*.py*")))


def numbers(folder: Path) -> dict[str, int]:
    return {f"{entry['subject']} v{entry['version']}": entry["id"] for entry in json.loads((folder / "registry.json").read_text())}


def test_no_published_schema_has_been_edited() -> None:
    assert catalog.edited() == []


def test_every_schema_file_is_published() -> None:
    named = {catalog.file_name(entry.subject, entry.version) for entry in FileRegistry().published()}
    assert {path.relative_to(catalog.FOLDER).as_posix() for path in catalog.FOLDER.rglob("*.avsc")} == named


def test_numbers_are_small_unique_and_in_order() -> None:
    given = [entry.id for entry in FileRegistry().published()]
    assert given == list(range(1, len(given) + 1))


def test_numbers_that_stand_in_published_vectors_never_change() -> None:
    registry = FileRegistry()
    assert [registry.id_of(subject, 1) for subject in ("attributes/message", "command", "event", "outcomes")] == [7, 16, 19, 20]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"A typed reference', '"Some reference'), ('"sequence"', '"seq"'), ('"default": null', '"default": null, "order": "ignore"')],
)
def test_an_edit_of_a_published_file_shows(folder: Path, old: str, new: str) -> None:
    """Docs and defaults are part of what was published."""
    path = folder / "event.v1.avsc"
    path.write_text(path.read_text().replace(old, new))
    assert catalog.edited(folder) == ["event.v1.avsc"]


def test_another_layout_of_the_same_file_is_no_edit(folder: Path) -> None:
    path = folder / "event.v1.avsc"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert catalog.edited(folder) == []


def test_a_lost_file_shows(folder: Path) -> None:
    (folder / "state" / "run.v1.avsc").unlink()
    assert catalog.edited(folder) == ["state/run.v1.avsc"]


def test_publishing_appends_numbers_and_changes_none(folder: Path) -> None:
    before = numbers(folder)
    for name in ("event.v2.avsc", "a-first-letter.v1.avsc"):
        shutil.copy(folder / "event.v1.avsc", folder / name)
    assert catalog.publish(folder) == ["a-first-letter.v1.avsc", "event.v2.avsc"]
    after = numbers(folder)
    assert {name: after[name] for name in before} == before
    assert after["a-first-letter v1"] == len(before) + 1
    assert FileRegistry(folder).current_version("event") == 2
    assert catalog.publish(folder) == []


def test_a_file_that_names_no_version_is_refused(folder: Path) -> None:
    (folder / "event.avsc").write_text("{}")
    with pytest.raises(ValueError, match=r"expected <subject>.v<version>.avsc"):
        catalog.publish(folder)


def test_what_is_not_published_is_unknown() -> None:
    registry = FileRegistry()
    with pytest.raises(UnknownSchema):
        registry.schema_by_id(9999)
    with pytest.raises(UnknownSchema):
        registry.id_of("event", 99)
    with pytest.raises(UnknownSchema):
        registry.current_version("nothing")
