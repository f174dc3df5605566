"""`session-streams support`: what was proven, whose word counts, and that a file which does not hold is told."""

import json
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner, Result

from connectors.cli.main import app
from connectors.support.capabilities import REPLACEMENT
from connectors.support.catalogue import STATEMENTS
from connectors.support.journeys import record
from connectors.support.statement import Evidence
from connectors.support.support import running_release
from streams.custody.signing import SigningKey
from streams.errors import Invalid, NotFound
from tests.support.journeys import LANE, NOON, SupportFolder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SUPPORT_DIR", "SUPPORT_DAYS", "REGISTRY_URL"):
        monkeypatch.delenv(f"SESSION_STREAMS_{name}", raising=False)
    monkeypatch.setenv("SESSION_STREAMS_SUPPORT_DAYS", "36500")
    return tmp_path / "data"


@pytest.fixture
def folder(data: Path) -> SupportFolder:
    return SupportFolder(data / "support")


def run(data: Path, *arguments: str, status: int = 0) -> str:
    done: Result = CliRunner().invoke(app, ["support", *arguments, "--data-dir", str(data)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == status, done.output
    return done.output


def test_what_was_proven_is_shown_beside_what_was_not(data: Path, folder: SupportFolder) -> None:
    lane = structs.replace(LANE, release=running_release())
    folder.observe(REPLACEMENT, lane)
    told = {row["capability"]: row for row in map(json.loads, run(data, "show", "--json").splitlines())}
    assert told[REPLACEMENT]["posture"] == "supported"
    assert told[REPLACEMENT]["tuple"] == structs.asdict(lane)
    assert told["steering"]["posture"] == "unobserved"
    lines = [line.split("\t") for line in run(data, "show").splitlines()]
    assert ["handoff", "not_offered"] in [line[:2] for line in lines]
    assert next(line for line in lines if line[0] == REPLACEMENT)[-2:] == [f"{NOON:%Y-%m-%dT%H:%M:%SZ}", "-"]


def test_a_file_that_holds_is_verified(data: Path, folder: SupportFolder) -> None:
    folder.observe()
    assert json.loads(run(data, "verify", "--json")) == {"verified": 1, "ignored": []}


def test_a_line_that_counts_as_nothing_is_told_with_its_number(data: Path, folder: SupportFolder, tmp_path: Path) -> None:
    folder.observe()
    folder.observe(key=SigningKey.generate())
    elsewhere = tmp_path / "from-ci.jsonl"
    elsewhere.write_bytes(b"".join([*folder.lines(), b"{}\n"]))
    told = json.loads(run(data, "verify", str(elsewhere), "--json", status=1))
    assert told == {"verified": 1, "ignored": [{"line": 2, "reason": "key.unknown"}, {"line": 3, "reason": "envelope.malformed"}]}
    assert f"{elsewhere}:2: key.unknown" in run(data, "verify", str(elsewhere), status=1)


def test_nobody_is_trusted_until_somebody_says_so(data: Path) -> None:
    assert run(data, "trust") == ""
    public = SigningKey.generate().public
    assert run(data, "trust", public.keyval.public) == f"{public.key_id}  {public.keyval.public}\n"
    assert run(data, "trust") == f"{public.key_id}  {public.keyval.public}\n"
    assert run(data, "trust", "--remove", public.key_id) == ""
    assert run(data, "trust") == ""


def test_the_key_of_a_file_is_made_and_what_it_signs_counts(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "journeys.pem"
    told = json.loads(run(data, "trust", "--key-file", str(file), "--json"))
    key = SigningKey.at(file)
    assert told == {"key_id": key.public.key_id, "public": key.public.keyval.public}
    record(data / "support" / STATEMENTS, key, REPLACEMENT, LANE, "passed", Evidence(test="t"))
    assert json.loads(run(data, "verify", "--json"))["verified"] == 1


def test_what_is_no_public_key_is_refused_and_an_unknown_one_cannot_be_removed(data: Path) -> None:
    with pytest.raises(Invalid, match="64 hex digits"):
        run(data, "trust", "abc")
    with pytest.raises(NotFound):
        run(data, "trust", "--remove", "abc")
    assert not (data / "support").exists()
