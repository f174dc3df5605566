"""`erase` and `erasures`: progress, receipts and exit codes, against a gateway whose custodian is in memory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from connectors.cli import erasing, main, usage
from connectors.cli.console import REFUSED, UNAVAILABLE, exit_code
from session_streams import Client
from session_streams.receipts import verify
from streams.errors import Retriable, StreamsError
from streams.log.retention import COMPLETE, DESTROYED
from tests.support.commands import new_id
from tests.support.gateway import World, message, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("gateway")) as each:
        yield each


@pytest.fixture
def client(made: World) -> Iterator[Client]:
    with Client(made.url, made.secret(), sleep=lambda seconds: None) as each:
        yield each


@pytest.fixture
def run(made: World) -> Any:
    environment = {"SESSION_STREAMS_URL": made.url, "SESSION_STREAMS_API_KEY": made.secret()}

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main.app, list(arguments), env=environment)

    return invoke


def person(client: Client) -> tuple[str, str, str]:
    """Outside id, pseudonym, session."""
    outside = new_id("customer")
    session = client.create_session(subject=outside)
    client.append(session.session_id, message())
    return outside, str(session.subject_id), session.session_id


def test_a_person_is_erased_and_the_answer_has_the_pseudonym_only(client: Client, run: Any) -> None:
    outside, subject, _ = person(client)
    result = run("erase", "--subject", outside)
    assert result.exit_code == 0
    assert f"accepted  subject {subject}" in result.stdout
    assert "awaits    custodian/0: " in result.stdout
    assert outside not in result.output


def test_a_session_is_erased_and_shown_as_the_service_tells_it(client: Client, run: Any) -> None:
    _, _, session = person(client)
    told = json.loads(run("erase", "--session", session, "--json").stdout)
    assert (told["scope"], told["status"]) == ({"kind": "session", "id": session}, "accepted")
    assert json.loads(run("erasures", "show", told["erasure_id"], "--json").stdout) == told


def test_waiting_shows_times_counts_and_signers_and_keeps_the_receipts(client: Client, made: World, run: Any, tmp_path: Path) -> None:
    _, subject, _ = person(client)
    made.custodian.goes_on(client.erase_subject(subject).erasure_id)
    file = tmp_path / "receipts"
    result = run("erase", "--subject", subject, "--wait", "--receipt", str(file))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["accepted", "destroyed", "enforced", "complete", "removed", "receipts"]
    assert "sessions 1" in result.stdout
    assert made.custodian.signers.current("receipts").public.key_id[:16] in lines[-1]
    assert [set(json.loads(line)) for line in file.read_text().splitlines()] == [{"payloadType", "payload", "signatures"}] * 3


def test_waiting_without_a_file_ends_with_the_receipt_itself(client: Client, made: World, run: Any) -> None:
    _, subject, _ = person(client)
    erasure = client.erase_subject(subject).erasure_id
    made.custodian.goes_on(erasure)
    printed = run("erase", "--subject", subject, "--wait").stdout.splitlines()
    verdict = verify(printed[-1].encode(), msgspec.json.encode(made.custodian.signers.trust()))
    assert (verdict.ok, verdict.receipts[0].erasure_id, verdict.receipts[0].step) == (True, erasure, "complete")


def test_progress_tells_of_all_that_were_awaited_how_many_are_not_any_more(client: Client, made: World) -> None:
    erasure = client.erase_subject(person(client)[1]).erasure_id
    told: list[tuple[int, int | None, str]] = []
    look = erasing._told(lambda done, total, detail="": told.append((done, total, detail)))
    look(client.erasure(erasure))
    made.custodian.goes_on(erasure)
    look(client.erasure(erasure))
    assert told == [(0, 1, "accepted, awaits custodian/0"), (1, 1, "complete")]


def test_who_waits_no_longer_is_told_that_it_goes_on(client: Client, run: Any) -> None:
    result = run("erase", "--subject", person(client)[1], "--wait", "--timeout", "0")
    assert isinstance(result.exception, Retriable)
    assert exit_code(result.exception) == UNAVAILABLE
    assert "awaiting custodian/0" in result.exception.detail


@pytest.mark.parametrize("arguments", [["erase", "--subject", "nobody"], ["erasures", "show", "ers_" + "0" * 32]])
def test_what_is_not_there_is_refused(run: Any, arguments: list[str]) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, usage.ClientFailed)
    assert result.exception.exit_code == REFUSED


@pytest.mark.parametrize("arguments", [[], ["--subject", "a", "--session", "sess_" + "0" * 32]])
def test_it_is_one_person_or_one_session(run: Any, arguments: list[str]) -> None:
    assert run("erase", *arguments).exit_code == 2


def test_a_file_that_cannot_be_written_is_said(client: Client, run: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    result = run("erase", "--subject", person(client)[1], "--receipt", str(tmp_path / "taken"))
    assert isinstance(result.exception, StreamsError)
    assert result.exception.code == "service.misconfigured"


def test_an_erasure_is_shown_at_every_step(client: Client, made: World) -> None:
    erasure = client.erase_subject(person(client)[1]).erasure_id
    seen = []
    for state in (DESTROYED, COMPLETE):
        made.custodian.goes_on(erasure, state)
        seen.append(len(erasing.lines_of(client.erasure(erasure))))
    assert seen == [5, 7]
