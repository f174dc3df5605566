"""What every registry promises, wherever its schemas lie. A test class inherits it and says how to make one."""

import json
import shutil
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas import catalog
from schemas.catalog import FileRegistry, Registry, UnknownSchema
from schemas.codec import Codec, Undecodable

SUFFIX = {"sequence": 1, "command_offset": 2, "command_last": True, "accepted_at": 3, "previous_hash": b"p", "hash": b"h"}


def folder_with_a_second_suffix(tmp_path: Path) -> Path:
    """The published schemas, and a further version of one of them: a field more, which has a default."""
    folder = Path(shutil.copytree(catalog.FOLDER, tmp_path / "schemas", ignore=shutil.ignore_patterns("*.py*")))
    schema = json.loads((folder / "suffix.v1.avsc").read_text())
    schema["fields"].append({"name": "noted", "type": ["null", "string"], "default": None})
    (folder / "suffix.v2.avsc").write_text(json.dumps(schema))
    assert catalog.publish(folder) == ["suffix.v2.avsc"]
    return folder


class RegistryContract(ABC):
    @abstractmethod
    def registry_of(self, folder: Path) -> Registry:
        """A registry that holds what is published in `folder`, for code that knows the same."""

    @pytest.fixture
    def registry(self) -> Registry:
        return self.registry_of(catalog.FOLDER)

    def test_every_published_version_is_found_by_its_number(self, registry: Registry) -> None:
        for each in FileRegistry().published():
            schema_id = registry.id_of(each.subject, each.version)
            found = registry.schema_by_id(schema_id)
            assert (found.id, found.subject, found.version, found.schema) == (schema_id, each.subject, each.version, each.schema)

    def test_no_two_schemas_share_a_number_and_each_fits_its_four_bytes(self, registry: Registry) -> None:
        published = FileRegistry().published()
        numbers = {registry.id_of(each.subject, each.version) for each in published}
        assert len(numbers) == len(published)
        assert all(0 < number < 2**31 for number in numbers)

    @pytest.mark.parametrize("schema_id", [-1, 0, 999_999, 2**31 - 1, 2**31, 2**32 - 1])
    def test_a_number_that_was_never_given_is_unknown(self, registry: Registry, schema_id: int) -> None:
        with pytest.raises(UnknownSchema):
            registry.schema_by_id(schema_id)

    @pytest.mark.parametrize(("subject", "version"), [("event", 0), ("event", 99), ("event", -1), ("nothing", 1), ("attributes", 1)])
    def test_a_version_that_was_never_published_is_unknown(self, registry: Registry, subject: str, version: int) -> None:
        with pytest.raises(UnknownSchema):
            registry.id_of(subject, version)

    def test_a_subject_that_was_never_published_has_no_current_version(self, registry: Registry) -> None:
        with pytest.raises(UnknownSchema):
            registry.current_version("nothing")

    def test_the_current_version_is_the_newest_that_the_code_knows(self, tmp_path: Path) -> None:
        registry = self.registry_of(folder_with_a_second_suffix(tmp_path))
        assert registry.current_version("suffix") == 2
        assert registry.current_version("event") == 1
        assert registry.id_of("suffix", 1) != registry.id_of("suffix", 2)

    def test_a_codec_over_it_writes_the_number_and_reads_it_back(self, registry: Registry) -> None:
        codec = Codec(registry)
        value = codec.encode("suffix", SUFFIX)
        assert int.from_bytes(value[1:5], "big") == registry.id_of("suffix", 1)
        assert codec.decode(value) == ("suffix", 1, SUFFIX)

    def test_a_codec_over_it_reads_an_older_version_as_the_current_one(self, tmp_path: Path) -> None:
        registry = self.registry_of(folder_with_a_second_suffix(tmp_path))
        body = Codec(FileRegistry()).encode_body("suffix", SUFFIX)
        old = b"\x00" + registry.id_of("suffix", 1).to_bytes(4, "big") + body
        assert Codec(registry).decode(old) == ("suffix", 1, {**SUFFIX, "noted": None})

    def test_a_codec_over_it_sets_aside_what_no_schema_stands_for(self, registry: Registry) -> None:
        with pytest.raises(Undecodable) as refused:
            Codec(registry).decode(b"\x00\x7f\xff\xff\xf0" + b"body")
        assert refused.value.reason == "wire.schema_id"

    def test_threads_that_ask_at_once_get_the_same_answers(self, registry: Registry) -> None:
        published = FileRegistry().published()

        def ask(_: int) -> list[int]:
            return [registry.schema_by_id(registry.id_of(each.subject, each.version)).id for each in published]

        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(ask, range(4)))
        assert all(answer == answers[0] for answer in answers)
