"""A person can be removed from a log that is only appended to, and that can be shown (design 04, "Proof").

One installation on a broker of its own: customers' conversations beside transcripts of code, checkpoints, uploads, large texts, agents'
checkpoints, exports. Twenty customers are erased while appends go on. Then everything is searched, and a backup from before is brought
back.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from session_streams import ApiError, NotFound
from session_streams.receipts import verify as receipts_of
from tests.support.customers import made_up, recorded
from tests.support.erasing import ROLES, erasing_installation, quick_broker, quick_settings
from tests.support.erasure_world import CANARIES, KIND, Erasure, World, backed_up, erased_from, made_world, verified
from tests.support.searching import Search

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
GONE = 20


class Size(NamedTuple):
    """Of an installation: brokers; trajectories of each customer, where they are recorded; recorded transcripts of code."""

    brokers: int
    trajectories: int
    transcripts: int


SMALL, LARGE = Size(1, 1, 0), Size(3, 1000, 5)


@pytest.fixture(
    scope="module", params=[SMALL, pytest.param(LARGE, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])], ids=["one", "three"]
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recordings_if_any: Path) -> Iterator[World]:
    size: Size = request.param
    work = tmp_path_factory.mktemp("erasure")
    with quick_broker(size.brokers) as kafka:
        settings = quick_settings(kafka.bootstrap, work / "data", replication=size.brokers)
        customers = recorded(recordings_if_any, each=size.trajectories) or made_up(GONE + 4)
        if size is SMALL:
            customers = customers[: GONE + 4]
        with erasing_installation(settings) as erasing:
            transcripts = sorted((recordings_if_any / "coding_sessions").glob("*.jsonl.gz"))[: size.transcripts]
            yield made_world(erasing, kafka, customers, transcripts, erase=GONE, work=work)


@pytest.fixture(scope="module")
def before(world: World) -> Search:
    """What the search finds while nobody is erased."""
    return world.everywhere(world.needles)


@pytest.fixture(scope="module")
def sealed(world: World) -> Search:
    """The sealed states of agents, while nobody is erased."""
    assert world.blobs()
    return world.compacted()


@pytest.fixture(scope="module")
def backup(world: World, before: Search, sealed: Search, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's whole data folder and all that the installation holds, from before any erasure."""
    return backed_up(world, tmp_path_factory.mktemp("backup"))


@pytest.fixture(scope="module")
def erasure(world: World, backup: Path) -> Erasure:
    return erased_from(world)


def test_without_an_erasure_the_search_finds_the_secrets_in_the_keyring_and_whatever_lies_open(world: World, before: Search) -> None:
    wrapped = {label for label in world.secrets if not label.startswith("secret ")}
    assert len(wrapped) >= 2 * GONE
    assert before.labels == wrapped | set(CANARIES), before.told()
    keyring = world.erasing.settings.data_dir / "keyring"
    assert all(finding.place.startswith(str(keyring)) for finding in before.findings if finding.label in wrapped), before.told()


def test_each_way_of_searching_finds_what_lies_open_to_it(world: World, before: Search) -> None:
    found: dict[str, set[str]] = {}
    for finding in before.findings:
        place = finding.place.partition(" ")[0]
        found.setdefault(finding.label, set()).add("file" if place.startswith("/") else place)
    line, row, record = CANARIES
    assert found[line] == {"file"}
    assert found[row] == {"file", "row"}
    assert found[record] == {
        "file",
        "kafka-dump-log",
        f"{world.erasing.settings.topic_prefix}sessions.deadletter-{record_partition(before)}",
    }


def test_exports_from_before_tell_of_each_customer(world: World) -> None:
    assert len({label for label in world.telling.labels if label.startswith("id of ")}) == GONE


def test_what_is_complete_cannot_be_found_in_any_file_segment_record_or_row(world: World, erasure: Erasure) -> None:
    found = world.everywhere(world.needles)
    assert found.labels == set(CANARIES), found.told()


def test_what_is_complete_does_not_lie_sealed_in_blobs_and_compacted_topics_either(world: World, sealed: Search, erasure: Erasure) -> None:
    assert sealed.labels == set(world.states) != set()
    found = world.compacted()
    assert found.findings == [], found.told()
    assert world.blobs() == []


def test_each_erasure_is_accepted_enforced_and_complete_in_this_order_and_has_a_receipt_of_each(
    world: World, erasure: Erasure, tmp_path: Path
) -> None:
    print(erasure.times())
    assert {told["scope"]["id"] for told in erasure.told} == set(world.gone.values())
    for told in erasure.told:
        assert told["status"] == "complete", told
        assert told["awaited"] == []
        assert len(told["receipts"]) == 3
        times = [told[each] for each in ("accepted_at", "destroyed_at", "enforced_at", "complete_at")]
        assert times == sorted(times)
    receipts = tmp_path / "receipts.ndjson"
    receipts.write_text("".join(f"{json.dumps(receipt)}\n" for told in erasure.told for receipt in told["receipts"]))
    verdict = receipts_of(receipts, world.erasing.settings.signers_path / "trust.json")
    assert verdict.ok, verdict
    assert len(verdict.receipts) == 3 * GONE


def test_positions_of_those_erased_are_gaps_with_their_reason_and_their_chains_are_valid(world: World, erasure: Erasure) -> None:
    for session in world.sessions_gone:
        export = world.erasing.exported(session)
        before, now = verified(world.exports[session]), verified(export)
        assert now.opened == 0, session
        assert now.unavailable == ({"erased": before.opened} if before.opened else {})
        assert now.end_sequence >= before.end_sequence
    shown = b"".join(world.erasing.exported(session) for session in world.sessions_gone)
    assert world.telling.in_bytes(shown, "exports").findings == []


def test_everybody_elses_exports_are_as_they_were_byte_for_byte(world: World, erasure: Erasure) -> None:
    """That of the session that was appended to meanwhile begins as it did, and has all that was acknowledged."""
    for session, export in world.exports.items():
        if session in world.sessions_gone:
            continue
        now = world.erasing.exported(session)
        verified(now)
        if session == erasure.appends.session_id:
            texts = [event.content["text"] for event in world.erasing.client.events(session) if event.content and "text" in event.content]
            assert [text for text in texts if text in set(erasure.appends.acknowledged)] == erasure.appends.acknowledged
        else:
            assert now == export


def test_agents_of_those_erased_have_no_checkpoint_any_more_and_others_have(world: World, erasure: Erasure) -> None:
    client = world.erasing.client
    for customer in world.customers[: GONE + 2]:
        if customer.user_id in world.gone:
            with pytest.raises(NotFound):
                client.get_checkpoint(customer.user_id, KIND)
        else:
            assert client.get_checkpoint(customer.user_id, KIND).state["version"] == 2


def test_what_needs_erased_content_is_refused(world: World, erasure: Erasure) -> None:
    client = world.erasing.client
    assert len(world.checkpoints) == 2
    for session, checkpoint in world.checkpoints:
        for part in ("snapshot", "native"):
            with pytest.raises(ApiError) as error:
                client.request("GET", f"/v1/sessions/{session}/checkpoints/{checkpoint}/content", params={"part": part})
            assert error.value.status == 409
        with pytest.raises(ApiError) as error:
            client.request("POST", f"/v1/sessions/{session}/forks", {"checkpoint_id": checkpoint})
        assert error.value.code == "runtime.checkpoint_expired"


def test_who_returns_is_somebody_new(world: World, erasure: Erasure) -> None:
    client, (name, subject) = world.erasing.client, next(iter(world.gone.items()))
    session = client.create_session(subject=name)
    assert session.subject_id not in (None, subject)
    client.append(session.session_id, {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": "back again"}})
    assert any(event.content == {"text": "back again"} for event in client.events(session.session_id))


def test_a_backup_from_before_reveals_nothing_with_todays_keyring(world: World, backup: Path, erasure: Erasure) -> None:
    """On a second broker, with stores, blobs and segments of then."""
    folder = backup / "data"
    shutil.copytree(world.erasing.settings.data_dir / "keyring", folder / "keyring")
    with quick_broker(len(world.kafka.node_ids), data_dir=backup / "kafka") as kafka:
        settings = world.settings_at(kafka.bootstrap, folder)
        roles = [role for role in ROLES if role != "custodian"]
        with erasing_installation(settings, roles=roles, key=world.erasing.key) as restored:
            shown = [restored.exported(session) for session in world.sessions_gone]
            assert all(verified(export).opened == 0 for export in shown)
            assert world.telling.in_bytes(b"".join(shown), "exports").findings == []
            for customer in world.customers[:GONE]:
                with pytest.raises(NotFound):
                    restored.client.get_checkpoint(customer.user_id, KIND)
            other = next(iter(world.kept.values()))
            assert [restored.exported(session) for session in world.sessions[other]] == [
                world.exports[each] for each in world.sessions[other]
            ]


def record_partition(before: Search) -> int:
    """Of the canary, as the consumer met it."""
    (place,) = {
        finding.place for finding in before.findings if "sessions.deadletter" in finding.place and not finding.place.startswith("/")
    }
    return int(place.partition(" ")[0].rpartition("-")[2])
