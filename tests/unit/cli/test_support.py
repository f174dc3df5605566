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
from streams.errors import Invalid, Misconfigured, NotFound
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


OWN = [
    "record", "--capability", REPLACEMENT, "--driver", "mine@1", "--sandbox-provider-revision", "docker@27", "--policy", "standard",
    "--execution-target", "local", "--harness-revision", "h-1", "--environment-revision", "image-7", "--test", "tests/mine.py",
]  # fmt: skip
"""A journey of a worker of one's own."""


def posture(data: Path) -> tuple[str, list[str]]:
    # What a gateway logs about a line that counts as nothing stands between them.
    rows = [json.loads(line) for line in run(data, "show", "--json").splitlines() if line.startswith("{")]
    (row,) = [row for row in rows if row["capability"] == REPLACEMENT]
    return row["posture"], row["readiness"]["missing"]


def test_what_ones_own_test_has_seen_counts_once_its_key_is_trusted(data: Path, tmp_path: Path) -> None:
    key = tmp_path / "mine.pem"
    told = run(data, *OWN, "--passed", "--key", str(key), "--make-key")
    assert f"  {data / 'support' / STATEMENTS}\n" in told
    assert f"support trust --key-file {key}" in told
    assert posture(data) == ("unobserved", ["evidence_missing"])
    run(data, "trust", "--key-file", str(key))
    assert posture(data) == ("supported", [])
    again = json.loads(run(data, *OWN, "--failed", "--key", str(key), "--json"))
    assert again["key_id"] == SigningKey.at(key).public.key_id
    assert posture(data) == ("unobserved", ["evidence_failed"])


def test_a_table_shows_every_coordinate_of_a_lane(data: Path, tmp_path: Path) -> None:
    key = tmp_path / "mine.pem"
    run(data, "trust", "--key-file", str(key))
    run(data, *OWN, "--passed", "--key", str(key))
    names, *lines = [line.split("\t") for line in run(data, "show").splitlines()]
    row = dict(zip(names, next(line for line in lines if line[0] == REPLACEMENT), strict=True))
    assert [row[name] for name in ("driver", "sandbox", "policy", "target", "harness", "environment")] == [
        "mine@1", "docker@27", "standard", "local", "h-1", "image-7"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ([*OWN, "--passed"], Misconfigured),
        ([*OWN, "--passed", "--make-key", "--capability", "telepathy"], Invalid),
        ([*OWN, "--passed", "--make-key", "--driver", "a b"], Invalid),
        ([*OWN, "--passed", "--make-key", "--session", "mine"], Invalid),
        ([*OWN[:11], *OWN[15:], "--passed", "--make-key"], Invalid),
    ],
    ids=["no key", "no such capability", "no name", "no session", "no harness and environment"],
)
def test_what_would_count_as_nothing_is_not_recorded(data: Path, tmp_path: Path, arguments: list[str], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        run(data, *arguments, "--key", str(tmp_path / "mine.pem"))
    assert not (data / "support" / STATEMENTS).exists()


def test_how_a_journey_ended_has_to_be_said(data: Path, tmp_path: Path) -> None:
    assert "--passed" in run(data, *OWN, "--key", str(tmp_path / "mine.pem"), "--make-key", status=2)
