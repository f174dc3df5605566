"""The eight reasons, each reached in several ways, and the earlier one wherever two hold."""

from itertools import combinations
from typing import get_args

import msgspec
import pytest

from streams.capsules import checks
from streams.capsules.model import ImportCapsule
from tests.support import capsules as support
from tests.support.capsules import FAULTS, Fault, faulty, known, parsed, signed, unsigned

ORDER = list(checks.CHECKS)


def test_what_is_whole_signed_and_qualified_is_imported() -> None:
    assert checks.refusal(parsed(signed(unsigned())), known()) is None


def test_the_same_run_goes_on_where_nothing_differs() -> None:
    document = unsigned()
    document["target"]["tool_manifest_digest"] = document["transfer"]["capsule"]["source_tool_manifest_digest"]
    document["use_kind"] = "same_run_recovery"

    assert checks.refusal(parsed(signed(document)), known()) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_refused_for_its_reason(fault: Fault) -> None:
    assert checks.refusal(*faulty(fault)) == fault.reason


def test_every_reason_is_reached_by_three_different_requests_at_least() -> None:
    reached = [fault.reason for fault in FAULTS]

    assert set(reached) == set(get_args(checks.Reason)) == set(ORDER)
    # Without a projector requests differ in nothing that the check could see; how that comes about is the gateway's to test, too.
    assert {reason for reason in ORDER if reached.count(reason) < 3} == set()


def test_of_two_faults_the_earlier_reason_is_told() -> None:
    tried = set()
    for first, second in combinations(FAULTS, 2):
        if first.reason == second.reason or not support.together(first, second):
            continue
        for pair in ((first, second), (second, first)):
            expected = min(first.reason, second.reason, key=ORDER.index)
            assert checks.refusal(*faulty(*pair)) == expected, (first.name, second.name)
        tried.add(frozenset((first.reason, second.reason)))

    # The projector says what is retained now: who cannot be asked says nothing.
    assert tried == {frozenset(pair) for pair in combinations(ORDER, 2)}


def test_who_is_refused_before_the_scan_need_not_be_scanned() -> None:
    for fault in FAULTS:
        request, facts = faulty(fault)
        before = checks.refusal_before_scan(request, msgspec.structs.replace(facts, scanned_clean=None))
        later = ORDER.index(fault.reason) >= ORDER.index("secret_scrub_failed")
        assert before == (None if later else fault.reason), fault.name


def test_what_was_not_scanned_is_never_imported() -> None:
    with pytest.raises(RuntimeError):
        checks.refusal(parsed(signed(unsigned())), known(scanned_clean=None))


def test_a_request_is_read_to_the_last_field() -> None:
    document = signed(unsigned())
    document["transfer"]["capsule"]["artifact"]["retention"]["note"] = "?"

    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(document, ImportCapsule)
