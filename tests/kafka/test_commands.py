"""The commands over a running `up`, as a person and as a script uses them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connectors.cli.found import read_up
from connectors.sources.samples import FOLDER as SAMPLES
from session_streams import Client
from tests.conftest import Broker
from tests.kafka.test_up import REPOSITORY, RunningUp, clean_environment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def up(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    running = RunningUp(tmp_path_factory.mktemp("up") / "data", "--broker", broker.bootstrap, topic_prefix=f"cmd.{os.getpid()}.")
    try:
        running.ready()
        yield running
    finally:
        running.process.send_signal(signal.SIGINT)
        running.process.wait(30)
        running.close()


def environment_of(data_dir: Path) -> dict[str, str]:
    return {**clean_environment(), "SESSION_STREAMS_DATA_DIR": str(data_dir)}


def run(data_dir: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """A command that finds everything through `up.json`, and ends with `status`."""
    done = subprocess.run(
        [sys.executable, "-m", "connectors.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment_of(data_dir),
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_samples_go_in_once_and_are_listed_with_counts_and_read_back(up: RunningUp) -> None:
    first = json.loads(run(up.data_dir, "ingest", "--json", "--check", str(SAMPLES)).stdout)
    assert first["ok"]
    assert first["check"]["different"] == 0
    assert first["sessions"] > 3
    assert first["events"] > 100
    second = json.loads(run(up.data_dir, "ingest", "--json", str(SAMPLES)).stdout)
    assert (second["events"], second["sessions_unchanged"]) == (0, first["sessions"])

    sessions = lines(run(up.data_dir, "sessions", "--json").stdout)
    assert {session["session_id"] for session in sessions} >= set(first["session_ids"])
    assert all(sum(session["counts"].values()) == session["sequence"] for session in sessions)  # type: ignore[attr-defined]

    chosen = first["session_ids"][0]
    tail = lines(run(up.data_dir, "tail", "--json", "-n", "3", chosen).stdout)
    length = next(session["sequence"] for session in sessions if session["session_id"] == chosen)
    assert isinstance(length, int)
    assert [event["sequence"] for event in tail] == [length - 2, length - 1, length]
    readable = run(up.data_dir, "tail", "-n", "1000", chosen).stdout.splitlines()
    assert len(readable) == length
    assert readable[0].split()[0] == "1"


def test_a_file_that_is_no_transcript_is_status_1_and_said(up: RunningUp, tmp_path: Path) -> None:
    assert "no/such/file" in run(up.data_dir, "ingest", "no/such/file", status=1).stdout


def test_following_takes_in_what_is_added_and_ctrl_c_ends_it_with_a_report(up: RunningUp, tmp_path: Path) -> None:
    text = (SAMPLES / "tide-tables.jsonl").read_bytes().splitlines(keepends=True)
    # A session of its own: another id than the sample's.
    grown = tmp_path / "grown.jsonl"
    own = [line.replace(b'"sessionId":"', b'"sessionId":"f') for line in text]
    grown.write_bytes(b"".join(own[:3]))
    following = subprocess.Popen(
        [sys.executable, "-m", "connectors.cli", "ingest", "--follow", "--json", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=environment_of(up.data_dir),
    )
    try:
        time.sleep(4)
        with grown.open("ab") as file:
            file.write(b"".join(own[3:]))
        time.sleep(4)
        following.send_signal(signal.SIGINT)
        printed, _ = following.communicate(timeout=30)
    finally:
        following.kill()
        following.wait()
    assert following.returncode == 0
    assert json.loads(printed)["records"] == len(own)


def test_doctor_finds_nothing_wrong_with_a_running_up(up: RunningUp) -> None:
    findings = lines(run(up.data_dir, "doctor", "--json").stdout)
    assert [finding for finding in findings if finding["status"] == "failed"] == []
    checks = {finding["check"] for finding in findings}
    assert checks >= {
        "brokers",
        "broker version",
        "broker settings",
        "topics",
        "authority",
        "authority lag",
        "projector",
        "erasures",
        "holders",
        "clocks",
        "disk",
        "gateway",
    }


def test_a_person_is_erased_and_the_receipts_are_evidence_without_any_service(up: RunningUp, tmp_path: Path) -> None:
    found = read_up(up.data_dir)
    assert found is not None
    with Client(found.gateway, found.api_key) as client:
        session = client.create_session(subject="elin_berg_7781")
        client.append(session.session_id, {"type": "message.appended", "content": {"text": "I am Elin Berg."}})
    file = tmp_path / "receipts"
    erased = run(up.data_dir, "erase", "--subject", "elin_berg_7781", "--wait", "--json", "--receipt", str(file))
    told = json.loads(erased.stdout)
    assert (told["status"], told["scope"]["id"], told["awaited"]) == ("complete", session.subject_id, [])
    assert json.loads(run(up.data_dir, "erasures", "show", told["erasure_id"], "--json").stdout) == told
    verified = run(up.data_dir, "receipts", "verify", str(file))
    assert verified.stdout.startswith(f"verified {told['erasure_id']}: subject {session.subject_id} is complete")
    trust = str(up.data_dir / "signers" / "trust.json")
    file.write_text(file.read_text().replace("A", "B", 1))
    run(up.data_dir, "receipts", "verify", str(file), "--trust", trust, status=1)
    holders = {row["holder"]: row["kind"] for row in lines(run(up.data_dir, "holders", "list", "--json").stdout)}
    assert {"custodian/0": "partition", "agents/0": "partition"}.items() <= holders.items()
    assert {holder.partition(".")[0] for holder, kind in holders.items() if kind == "cache"} >= {"gateway", "authority", "agents"}


def test_keys_are_made_with_scopes_listed_without_secrets_and_revoked(up: RunningUp) -> None:
    made = json.loads(run(up.data_dir, "keys", "create", "--json", "--scope", "sessions:read", "--expires-in-days", "1").stdout)
    assert run(up.data_dir, "sessions", "--json", "--api-key", made["api_key"], "--url", gateway_of(up)).returncode == 0
    listed = run(up.data_dir, "keys", "list", "--json").stdout
    assert made["api_key"] not in listed
    assert made["key_id"] in listed
    run(up.data_dir, "keys", "revoke", made["key_id"])

    refused = run_until_refused(up, made["api_key"])
    assert "auth.revoked" in refused
    run(up.data_dir, "keys", "revoke", "key_" + "0" * 32, status=1)


def gateway_of(up: RunningUp) -> str:
    return str(json.loads((up.data_dir / "up.json").read_bytes())["gateway"])


def run_until_refused(up: RunningUp, api_key: str) -> str:
    """A gateway follows a revocation; it may take a moment."""
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, "-m", "connectors.cli", "sessions", "--api-key", api_key, "--url", gateway_of(up)],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=environment_of(up.data_dir),
            timeout=60,
            check=False,
        )
        if done.returncode == 1:
            return done.stderr
    raise AssertionError("a revoked key goes on working")


def test_statuses_say_what_kind_of_failure_it_is(up: RunningUp, tmp_path: Path) -> None:
    run(up.data_dir, "tail", "sess_" + "0" * 32, status=1)
    run(up.data_dir, "tail", "--no-such-option", status=2)
    assert "run `session-streams up`" in run(tmp_path, "sessions", status=3).stderr
    run(tmp_path, "sessions", "--url", "http://127.0.0.1:1", "--api-key", "sks_x", status=4)


def test_topics_plan_says_what_is_missing_and_apply_makes_it(broker: Broker, tmp_path: Path) -> None:
    environment = {**environment_of(tmp_path), "SESSION_STREAMS_TOPIC_PREFIX": f"plan.{os.getpid()}."}

    def topics(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "connectors.cli", "topics", command, "--json", "--broker", broker.bootstrap],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=environment,
            timeout=60,
            check=False,
        )

    planned = topics("plan")
    assert planned.returncode == 3
    assert {row["state"] for row in lines(planned.stdout)} == {"missing"}
    assert len(json.loads(topics("apply").stdout)["created"]) == len(lines(planned.stdout))
    assert topics("plan").returncode == 0
    assert json.loads(topics("apply").stdout)["created"] == []


def test_the_demo_shows_everything_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Status 0, every part of the show, no process and no folder left."""
    environment = {**environment_of(tmp_path), "TMPDIR": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-m", "connectors.cli", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=environment,
    )
    try:
        printed, said = started.communicate(timeout=200)
    finally:
        started.kill()
        started.wait()
    assert started.returncode == 0, said
    for part in (
        "no difference",
        "0 records became 0 events",
        "claude-code, record",
        "tau-bench, record",
        '"content":',
        "events/s",
        "settled by provider_lookup (the provider was asked",
        "nobody takes the place of an attempt that was ready without evidence",
        "messages, each once and in order",
        "actions, each once",
        "[content erased]",
        " content unavailable: 14 erased;",
        "is complete since",
        "receipts: accepted, enforced, complete; signed by",
        "gap in events: 14 erased, positions ",
        "gap in artifacts: none recorded",
        "NOT VERIFIED section_mismatch",
    ):
        assert part in printed
    assert "refused:" not in printed, "what is expected does not look like a failure"
    assert list(tmp_path.iterdir()) == []
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(process.info["cmdline"] or [])]
