"""The fixture by which tests of journeys write the catalogue: with a folder it records how they ended, without one nothing."""

from pathlib import Path

import pytest

from connectors.support.capabilities import CAPABILITIES, REPLACEMENT
from connectors.support.rows import CapabilityRow
from connectors.support.support import Support
from connectors.support.trust import change_trust
from streams.settings import Settings
from tests.support.journeys import KEY, LOCAL, journey_of


def told(folder: Path) -> CapabilityRow:
    change_trust(folder / "trusted.json", key_file=folder / KEY)
    return Support(Settings(support_dir=str(folder))).row(CAPABILITIES[REPLACEMENT], LOCAL)


def test_a_journey_that_passes_is_evidence_for_whoever_trusts_the_tests(tmp_path: Path) -> None:
    with journey_of(tmp_path, "tests/x.py::test_y")(REPLACEMENT):
        pass
    found = told(tmp_path)
    assert (found.posture, found.readiness.ready) == ("supported", True)


@pytest.mark.parametrize("failure", [AssertionError, pytest.fail.Exception, ValueError])
def test_a_journey_that_fails_or_times_out_is_told_too(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises((AssertionError, ValueError)), journey_of(tmp_path, "t")(REPLACEMENT):
        raise failure("it")
    assert told(tmp_path).readiness.missing == ["evidence_failed"]


def test_a_journey_that_is_skipped_or_broken_off_says_nothing(tmp_path: Path) -> None:
    for end in (pytest.skip.Exception, KeyboardInterrupt):
        with pytest.raises(end), journey_of(tmp_path, "t")(REPLACEMENT):
            raise end
    assert told(tmp_path).readiness.missing == ["evidence_missing"]


def test_without_a_folder_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with journey_of(None, "t")(REPLACEMENT):
        pass
    assert list(tmp_path.iterdir()) == []
