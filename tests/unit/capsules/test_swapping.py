"""Two transfers that may both be imported, and what is made of pieces of both: never imported, whatever the pieces are."""

import copy
import json
from itertools import product
from typing import Any, get_args

import pytest

from streams.capsules import checks
from tests.support.capsules import Document, signed, unsigned
from tests.unit.capsules.test_tampering import verdict, written

SESSION, THREAD = "sess_" + "7" * 32, "sthr_" + "7" * 32
Path = tuple[str | int, ...]


def another() -> Document:
    """As valid as the first, and another one in every text that may be another."""
    document = unsigned(session_id=SESSION, thread_id=THREAD, capsule_id="cap_" + "8" * 32)
    text = json.dumps(document).replace('-1"', '-2"').replace('/1"', '/2"').replace("run_4", "run_9").replace("ckpt_5", "ckpt_9")
    made: Document = json.loads(text)
    made["target"]["qualification_receipt"]["qualified_capabilities"].append("steering")
    made["transfer"]["exported_at"] = made["transfer"]["capsule"]["artifact"]["created_at"]
    return signed(made)


ONE, OTHER = signed(unsigned()), another()


def members(value: Any, path: Path = ()) -> list[Path]:
    """The path of everything within, objects and lists included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, each in inner for found in ((*path, name), *members(each, (*path, name)))]


def at(document: Any, path: Path) -> Any:
    for name in path:
        document = document[name]
    return document


PATHS = [path for path in members(ONE) if path in members(OTHER) and at(ONE, path) != at(OTHER, path)]
PIECES: list[Path] = [
    ("session_thread_id",), ("target",), ("transfer", "capsule"), ("transfer", "capsule", "artifact", "retention"),
    ("transfer", "projection_signature"), ("transfer", "exported_at"),
]  # fmt: skip


def spliced(*paths: Path) -> Document:
    """The first with these members of the other."""
    document = copy.deepcopy(ONE)
    for path in paths:
        at(document, path[:-1])[path[-1]] = copy.deepcopy(at(OTHER, path))
    return document


def test_both_are_imported_where_they_belong() -> None:
    assert verdict(written(ONE)) == "imported"
    assert verdict(written(OTHER), session_id=SESSION, custody=checks.Custody(SESSION)) == "imported"


def test_a_member_of_the_other_is_found_wherever_it_stands() -> None:
    assert len(PATHS) > 50
    found = {path: verdict(written(spliced(path))) for path in PATHS}
    assert set(found.values()) == {"capsule_invalid", "source_projection_unavailable", "target_unqualified", "capsule_incompatible"}, found
    # The other's signature of the right statement is one that its key never made of it.
    assert {path[-1] for path, reason in found.items() if reason == "source_projection_unavailable"} == {"signature"}
    # A target that is qualified is still not one that this capsule is for.
    assert [path for path, reason in found.items() if reason == "capsule_incompatible"] == [("target",)]


def test_so_are_several_of_them_together() -> None:
    for taken in product((False, True), repeat=len(PIECES)):
        chosen = [piece for piece, is_taken in zip(PIECES, taken, strict=True) if is_taken]
        if chosen:
            # All of them together are the other's transfer, which is not of this session.
            assert verdict(written(spliced(*chosen))) in get_args(checks.Reason), chosen


@pytest.mark.parametrize("custody", [None, checks.Custody("sess_" + "1" * 32, revoked=True)])
def test_one_that_was_valid_is_not_imported_again_once_its_capsule_is_gone(custody: checks.Custody | None) -> None:
    assert verdict(written(ONE), custody=custody) == "capsule_absent"
