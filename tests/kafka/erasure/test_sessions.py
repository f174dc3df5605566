"""What an erasure removes of sessions and forks, with the custodian killed in the middle of it: secrets of uploads, blobs, rows.

One installation for all; each test erases somebody of its own.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_streams import ApiError, Client
from streams.settings import Settings
from tests.conftest import Broker
from tests.support.erasing import Erasing, erasing_installation, quick_settings
from tests.support.erasure_world import LARGE_TEXT_BYTES, verified
from tests.support.processes import RoleProcess, eventually
from tests.support.recovery_rows import Worker, last_event, worker_at

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
PAUSES_S = (0.0, 0.4, 0.8)
"""Between the kills: somewhere between the order and its end."""


@pytest.fixture(scope="module")
def erasing(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Erasing]:
    settings = quick_settings(broker.bootstrap, tmp_path_factory.mktemp("sessions") / "data", member_session_timeout_s=6.0)
    with erasing_installation(settings) as made:
        yield made


def at_work(client: Client, subject: str) -> Worker:
    """A session with content, a text of its own in the blob store, and a checkpoint with a snapshot."""
    session = client.create_session(subject=subject)
    worker = worker_at(client, session.session_id).claim()
    worker.say(f"{subject} said this")
    worker.say("." * LARGE_TEXT_BYTES)
    return worker


def blobs_of(settings: Settings, session_id: str) -> list[Path]:
    return [path for path in (settings.data_dir / "blobs").glob(f"*/{session_id}/**/*") if path.is_file()]


def kill_in_between(custodian: RoleProcess) -> None:
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        custodian.kill()
        custodian.again()


def custodian_of(erasing: Erasing) -> RoleProcess:
    (found,) = [role for role in erasing.fleet.roles if role.output.name.startswith("custodian")]
    return found


def test_a_killed_custodian_ends_the_erasure_of_a_subject_in_all_its_sessions_and_touches_nobody_else(erasing: Erasing) -> None:
    client = erasing.client
    worker, other = at_work(client, "mara_ito_5521"), at_work(client, "noel_abara_8830")
    checkpoint, kept = worker.checkpoint(snapshot=b"disk of mara", native=b"state of mara"), other.checkpoint(snapshot=b"disk of noel")
    second = client.create_session(subject="mara_ito_5521").session_id
    erasing.say(second, "mara again")
    fork = client.fork(worker.session_id, checkpoint_id=checkpoint["checkpoint_id"]).session_id
    erasing.say(fork, "in the fork")
    before = erasing.exported(other.session_id)
    others_blobs = blobs_of(erasing.settings, other.session_id)
    assert blobs_of(erasing.settings, worker.session_id)
    asked = erasing.ask_erasure("mara_ito_5521")
    kill_in_between(custodian_of(erasing))
    (told,) = erasing.reached([asked["erasure_id"]], "complete", within_s=150)
    assert told["counts"]["sessions"] == 3
    assert told["counts"]["checkpoints"] == 1
    for session_id in (worker.session_id, second, fork):
        verdict = verified(erasing.exported(session_id))
        assert (verdict.opened, set(verdict.unavailable)) == (0, {"erased"})
        assert blobs_of(erasing.settings, session_id) == []
    with pytest.raises(ApiError) as refused:
        worker_at(client, fork)
    assert refused.value.code == "content.erased"
    with pytest.raises(ApiError) as refused:
        client.fork(worker.session_id, checkpoint_id=checkpoint["checkpoint_id"])
    assert refused.value.code == "runtime.checkpoint_expired"
    assert erasing.exported(other.session_id) == before
    assert blobs_of(erasing.settings, other.session_id) == others_blobs
    assert b"".join(client.checkpoint_content(other.session_id, kept["checkpoint_id"])) == b"disk of noel"


def test_an_erased_session_is_taken_from_its_fork_whose_own_content_stays(erasing: Erasing) -> None:
    client = erasing.client
    source = at_work(client, "olga_reyes_1174")
    last = last_event(client, source.session_id)
    fork = client.fork(source.session_id, at_event=last["event_id"], through_sequence=last["sequence"]).session_id
    worker = worker_at(client, fork).claim()
    worker.say("the fork's own")
    before = worker.checkpoint(snapshot=b"has seen the source")
    own = erasing.exported(fork)
    asked = client.request("DELETE", f"/v1/sessions/{source.session_id}").json()
    kill_in_between(custodian_of(erasing))
    (told,) = erasing.reached([asked["erasure_id"]], "complete", within_s=150)
    assert (told["counts"]["sessions"], told["counts"]["forks"]) == (1, 1)
    assert verified(erasing.exported(source.session_id)).opened == 0
    assert erasing.exported(fork) == own
    with pytest.raises(ApiError):
        b"".join(client.checkpoint_content(fork, before["checkpoint_id"]))
    assert [path for path in blobs_of(erasing.settings, fork) if "/content/" not in str(path)] == []
    with pytest.raises(ApiError) as refused:
        worker_at(client, fork).claim()
    assert refused.value.code == "runtime.session_history_unavailable"
    gaps = worker_at(client, fork).claim(incomplete_ok=True).grant["recovery"]["unavailable"]
    assert {(gap["session_id"], gap["reason"]) for gap in gaps} == {(source.session_id, "content.erased")}
    later = worker.checkpoint(snapshot=b"made afterwards")
    eventually(lambda: b"".join(client.checkpoint_content(fork, later["checkpoint_id"])) == b"made afterwards")
