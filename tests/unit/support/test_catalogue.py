"""What counts as proof that a capability is there on one exact tuple, and what does not."""

import base64
import fcntl
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from connectors.support import catalogue
from connectors.support.capabilities import CAPABILITIES, NOT_OFFERED, REPLACEMENT
from connectors.support.journeys import observing, record
from connectors.support.rows import CapabilityRow
from connectors.support.statement import PAYLOAD_TYPE, Evidence, ExactTuple
from connectors.support.support import Support
from streams.custody.signing import SigningKey
from streams.errors import Invalid
from streams.session import refusals
from streams.settings import Settings
from tests.support.journeys import LANE, NOON, RELEASE, SupportFolder

NOW_US = int(NOON.timestamp()) * 1_000_000
COORDINATES = ExactTuple.__struct_fields__


@pytest.fixture
def folder(tmp_path: Path) -> SupportFolder:
    return SupportFolder(tmp_path / "support")


@pytest.fixture
def support(folder: SupportFolder) -> Support:
    return Support(Settings(support_dir=str(folder.path)), release=RELEASE, clock=lambda: NOW_US)


def row(support: Support, exact: ExactTuple = LANE, capability: str = REPLACEMENT) -> CapabilityRow:
    return support.row(CAPABILITIES[capability], exact)


def unproven(support: Support, reason: str = "evidence_missing") -> bool:
    """Whether nobody takes the lane for verified: the row says so and why, and no replacement would be let through."""
    found = row(support)
    assert (found.posture, found.evidence, found.readiness.missing) == ("unobserved", None, [reason])
    return support.verification_for(LANE) is None


def ignored(support: Support) -> dict[str, int]:
    """What is logged while the folder is read: reasons and how often."""
    with capture_logs() as logs:
        support.catalogue()
    told = [each for each in logs if each["event"] == "support_statements_ignored"]
    return {**told[0]["reasons"], **({"stale": told[0]["stale"]} if told[0]["stale"] else {})} if told else {}


def test_a_passed_journey_proves_its_tuple(folder: SupportFolder, support: Support) -> None:
    digest = folder.observe(days=1)
    assert support.verification_for(LANE) == (digest, NOW_US - 86_400_000_000)
    found = row(support)
    assert (found.posture, found.readiness.ready, found.readiness.missing) == ("supported", True, [])
    assert found.evidence is not None
    assert (found.evidence.journey, found.evidence.release, found.evidence.statement) == ("post-ready-replacement", RELEASE, digest)
    assert found.evidence.observed_at == NOON - timedelta(days=1)
    assert found.latest_proven_release == RELEASE


def test_nothing_is_proven_where_nobody_looked(support: Support) -> None:
    assert unproven(support)


@pytest.mark.parametrize("coordinate", COORDINATES)
def test_a_tuple_that_differs_in_one_coordinate_is_unobserved(folder: SupportFolder, support: Support, coordinate: str) -> None:
    folder.observe(exact=structs.replace(LANE, **{coordinate: "another"}))
    assert unproven(support)
    assert row(support).latest_proven_release == ("another" if coordinate == "release" else None)


def test_what_does_not_depend_on_a_harness_is_proven_whatever_its_revision(folder: SupportFolder, support: Support) -> None:
    folder.observe("portable_rebuild")
    other = structs.replace(LANE, harness_revision="h-8", environment_revision=None)
    assert row(support, other, "portable_rebuild").posture == "supported"


def test_evidence_for_one_capability_is_none_for_another(folder: SupportFolder, support: Support) -> None:
    folder.observe("native_continuation")
    assert unproven(support)


def test_a_failure_that_came_later_takes_the_proof_away_and_a_pass_gives_it_back(folder: SupportFolder, support: Support) -> None:
    folder.observe(days=3)
    folder.observe(outcome="failed", days=2)
    assert unproven(support, "evidence_failed")
    assert row(support).latest_proven_release == RELEASE
    folder.observe(days=1)
    assert support.verification_for(LANE) is not None


def test_the_order_of_observation_counts_and_not_that_of_the_file(folder: SupportFolder, support: Support) -> None:
    folder.observe(outcome="failed", days=1)
    folder.observe(days=2)
    assert unproven(support, "evidence_failed")


def test_an_observation_counts_for_thirty_days(folder: SupportFolder, support: Support) -> None:
    folder.observe(days=30)
    assert ignored(support) == {"stale": 1}
    assert unproven(support, "evidence_stale")
    assert row(support).latest_proven_release == RELEASE
    folder.observe(days=29.999)
    assert support.verification_for(LANE) is not None


def test_how_long_it_counts_is_a_setting(folder: SupportFolder) -> None:
    folder.observe(days=3)
    strict = Support(Settings(support_dir=str(folder.path), support_days=2), release=RELEASE, clock=lambda: NOW_US)
    assert unproven(strict, "evidence_stale")


def test_an_observation_of_the_future_counts_for_nothing(folder: SupportFolder, support: Support) -> None:
    folder.observe(days=-1)
    assert unproven(support, "evidence_ahead")


def test_evidence_of_another_release_does_not_verify_the_one_that_runs(folder: SupportFolder) -> None:
    folder.observe()
    newer = Support(Settings(support_dir=str(folder.path)), release="0.2.0", clock=lambda: NOW_US)
    assert newer.verification_for(LANE) is None
    by_release = {found.tuple.release: found for found in newer.rows() if found.capability == REPLACEMENT and found.tuple is not None}
    assert (by_release[RELEASE].posture, by_release[RELEASE].readiness.missing) == ("supported", ["release_differs"])
    assert (by_release["0.2.0"].posture, by_release["0.2.0"].latest_proven_release) == ("unobserved", RELEASE)


def altered(line: bytes, change: Callable[[dict[str, object]], None]) -> bytes:
    """The same envelope around a payload that was changed after it was signed."""
    told = json.loads(line)
    payload = json.loads(base64.b64decode(told["payload"]))
    change(payload)
    told["payload"] = base64.b64encode(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).decode()
    return json.dumps(told).encode() + b"\n"


@pytest.mark.parametrize("field", ["observed_at", "outcome", "capability", "tuple"])
def test_an_altered_statement_is_no_proof(folder: SupportFolder, support: Support, field: str) -> None:
    folder.observe(outcome="failed" if field == "outcome" else "passed")
    better = {
        "observed_at": "2026-11-30T11:59:59Z", "outcome": "passed", "capability": "native_continuation",
        "tuple": {**structs.asdict(LANE), "driver": "other"},
    }  # fmt: skip
    folder.write(altered(folder.lines()[0], lambda payload: payload.update({field: better[field]})))
    assert ignored(support) == {"signature.wrong": 1}
    assert unproven(support)


def test_a_line_that_was_rewritten_to_the_same_payload_still_counts(folder: SupportFolder, support: Support) -> None:
    """The check above fails for the change alone."""
    folder.observe()
    folder.write(altered(folder.lines()[0], lambda payload: None))
    assert support.verification_for(LANE) is not None


def test_a_statement_of_a_foreign_key_is_no_proof(folder: SupportFolder, support: Support) -> None:
    folder.observe(key=SigningKey.generate())
    assert ignored(support) == {"key.unknown": 1}
    assert unproven(support)


def test_a_feature_list_that_attests_itself_is_no_proof(folder: SupportFolder, support: Support) -> None:
    """Unsigned, or signed by nobody, however well it reads."""
    folder.observe()
    payload = json.loads(base64.b64decode(json.loads(folder.lines()[0])["payload"]))
    unsigned = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(json.dumps(payload).encode()).decode(), "signatures": []}
    features = {"features": [{"capability": name, "posture": "supported"} for name in CAPABILITIES]}
    folder.write(*(json.dumps(each).encode() + b"\n" for each in (payload, unsigned, features)))
    assert ignored(support) == {"envelope.malformed": 2, "key.unknown": 1}
    assert unproven(support)
    assert {found.posture for found in support.rows()} == {"unobserved", "not_offered"}


def test_a_key_that_is_trusted_no_longer_proves_nothing(folder: SupportFolder, support: Support) -> None:
    folder.observe()
    assert support.verification_for(LANE) is not None
    folder.trust(SigningKey.generate())
    assert unproven(support)


@pytest.mark.parametrize("name", [catalogue.STATEMENTS, catalogue.TRUSTED])
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_may_change_proves_nothing(folder: SupportFolder, support: Support, name: str, mode: int) -> None:
    folder.observe()
    (folder.trusted.parent / name).chmod(mode)
    with capture_logs() as logs:
        assert unproven(support)
    assert [each["event"] for each in logs] == ["support_unreadable"]


def test_a_trusted_key_under_another_ones_id_is_refused(folder: SupportFolder, support: Support) -> None:
    folder.observe()
    named = json.loads(folder.trusted.read_bytes())
    named["keys"] = {"0" * 64: next(iter(named["keys"].values()))}
    folder.trusted.write_text(json.dumps(named))
    assert unproven(support)


def test_a_line_that_cannot_be_read_does_not_keep_the_others_from_counting(folder: SupportFolder, support: Support) -> None:
    folder.observe()
    folder.write(b"torn {\n", b"\xff\n", b"\n", *folder.lines(), b"x" * (catalogue.LINE_BYTES_MAX + 1))
    assert ignored(support) == {"envelope.malformed": 3}
    assert support.verification_for(LANE) is not None


def signed(folder: SupportFolder, payload: dict[str, object]) -> bytes:
    told = folder.key.sign(PAYLOAD_TYPE, json.dumps(payload).encode())
    signatures = [{"keyid": each.keyid, "sig": base64.b64encode(each.sig).decode()} for each in told.signatures]
    return json.dumps(
        {"payloadType": told.payload_type, "payload": base64.b64encode(told.payload).decode(), "signatures": signatures}
    ).encode() + b"\n"  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"capability": "telepathy"}, "capability.unknown"),
        ({"journey": "another"}, "journey.other"),
        ({"tuple": structs.asdict(structs.replace(LANE, environment_revision=None))}, "coordinates.missing"),
        ({"observed_at": "2026-11-30T12:00:00"}, "statement.unreadable"),
        ({"outcome": "probably"}, "statement.unreadable"),
        ({"confidence": 1}, "statement.unreadable"),
    ],
)
def test_a_signed_statement_that_says_something_else_is_no_proof(
    folder: SupportFolder, support: Support, change: dict[str, object], reason: str
) -> None:
    folder.observe()
    payload = json.loads(base64.b64decode(json.loads(folder.lines()[0])["payload"]))
    folder.write(signed(folder, {**payload, **change}))
    assert ignored(support) == {reason: 1}
    assert unproven(support)


def test_what_is_recorded_meanwhile_is_seen(folder: SupportFolder, support: Support) -> None:
    assert unproven(support)
    folder.observe()
    assert support.verification_for(LANE) is not None


def test_of_a_file_that_has_grown_too_long_the_end_counts(folder: SupportFolder, support: Support, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.observe("collaboration")
    first = len(folder.lines()[0])
    folder.observe()
    monkeypatch.setattr(catalogue, "FILE_BYTES_MAX", first + 100)
    assert support.verification_for(LANE) is not None
    assert row(support, capability="collaboration").posture == "unobserved"
    assert ignored(support) == {}


def test_every_capability_and_all_that_is_not_offered_has_a_row(support: Support) -> None:
    rows = {found.capability: found for found in support.rows()}
    assert list(rows) == [*CAPABILITIES, *(each.name for each in NOT_OFFERED)]
    assert all(rows[name].posture == "unobserved" and rows[name].tuple is None for name in CAPABILITIES)
    capsule = rows["capsule_import"]
    assert (capsule.declared, capsule.hosting, capsule.journey) == ("alpha", "hosted", "session-turn")
    assert rows["handoff"].refusal == refusals.HANDOFF_UNAVAILABLE
    assert rows["unsupported_steering"].refusal == refusals.STEERING_UNAVAILABLE
    assert rows[REPLACEMENT].refusal == refusals.REPLACEMENT_UNAVAILABLE


def test_capsule_import_is_alpha_where_it_is_proven(folder: SupportFolder, support: Support) -> None:
    folder.observe("capsule_import")
    assert row(support, capability="capsule_import").posture == "alpha"


class TestAJourney:
    def test_that_ends_well_is_recorded_as_passed(self, folder: SupportFolder) -> None:
        with observing(folder.statements, folder.key, REPLACEMENT, LANE, test="t") as observed:
            observed.position = "sessions.commands:1:9"
        told = json.loads(base64.b64decode(json.loads(folder.lines()[0])["payload"]))
        assert (told["outcome"], told["evidence"]) == ("passed", {"test": "t", "position": "sessions.commands:1:9"})

    def test_that_raises_is_recorded_as_failed_and_raises(self, folder: SupportFolder) -> None:
        with pytest.raises(ZeroDivisionError), observing(folder.statements, folder.key, REPLACEMENT, LANE, test="t"):
            raise ZeroDivisionError
        assert json.loads(base64.b64decode(json.loads(folder.lines()[0])["payload"]))["outcome"] == "failed"

    @pytest.mark.parametrize(
        ("capability", "exact"),
        [
            ("telepathy", LANE),
            (REPLACEMENT, structs.replace(LANE, harness_revision=None)),
            (REPLACEMENT, structs.replace(LANE, driver="two words")),
        ],
    )
    def test_that_proves_nothing_is_not_recorded(self, folder: SupportFolder, capability: str, exact: ExactTuple) -> None:
        with pytest.raises(Invalid):
            record(folder.statements, folder.key, capability, exact, "passed", Evidence(test="t"))
        assert not folder.statements.exists()

    def test_does_not_join_a_line_that_was_torn(self, folder: SupportFolder, support: Support) -> None:
        folder.observe()
        folder.write(folder.lines()[0][:-20])
        folder.observe()
        assert support.verification_for(LANE) is not None

    def test_keeps_its_line_whole_beside_others_that_record(self, folder: SupportFolder, support: Support) -> None:
        with ThreadPool(4) as pool:
            pool.map(lambda number: folder.observe(exact=structs.replace(LANE, driver=f"d{number}")), range(40))
        assert ignored(support) == {}
        assert len(support.catalogue().tuples(CAPABILITIES[REPLACEMENT])) == 40

    def test_waits_for_whoever_is_in_the_middle_of_a_line(self, folder: SupportFolder, support: Support) -> None:
        folder.observe("steering")
        line = folder.lines()[0]
        folder.write(line[:50])
        recorder = threading.Thread(target=folder.observe)
        with folder.statements.open("ab", buffering=0) as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            recorder.start()
            recorder.join(0.2)
            assert recorder.is_alive()
            other.write(line[50:])
        recorder.join()
        assert ignored(support) == {}
        assert len(folder.lines()) == 2
