"""`session-streams export` against a gateway whose log is in memory, and offline."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from connectors.cli.main import app
from connectors.cli.usage import ClientFailed
from session_streams import Client
from session_streams.export import verify
from streams.errors import Invalid, Misconfigured
from tests.support.exports import changed, conversation
from tests.support.gateway import OTHER_WORKSPACE, World, message

OFFLINE = conversation()


@pytest.fixture(scope="module")
def session_id(made: World) -> str:
    with Client(made.url, made.secret()) as client:
        session = client.create_session(subject="mia")
        client.append_many(session.session_id, [message(f"text {number}") for number in range(300)])
        return session.session_id


def run(made: World | None, *arguments: str, **key: str) -> Result:
    """What the command answers; an error that it raises is raised here."""
    where = [] if made is None else ["--url", made.url, "--api-key", made.secret(**key)]
    result = CliRunner().invoke(app, ["export", *arguments, *where])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


class TestToAFile:
    def test_writes_an_export_that_only_its_owner_may_read(self, made: World, session_id: str, tmp_path: Path) -> None:
        path = tmp_path / "x.ndjson"
        result = run(made, session_id, "-o", str(path))
        assert (result.exit_code, result.stdout) == (0, "")
        assert "export: 301 of 301 events" in result.stderr
        assert verify(path).positions == 301
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(tmp_path.iterdir()) == [path]

    def test_checks_what_it_wrote(self, made: World, session_id: str, tmp_path: Path) -> None:
        result = run(made, session_id, "-o", str(tmp_path / "x"), "--verify")
        assert (result.exit_code, result.stdout.split()[0]) == (0, "verified")

    def test_takes_the_newest_session_where_none_is_named(self, made: World, tmp_path: Path) -> None:
        with Client(made.url, made.secret()) as client:
            newest = client.create_session().session_id
        result = run(made, "-o", str(tmp_path / "x"), "--verify", "--json")
        verdict = json.loads(result.stdout)
        assert (verdict["ok"], verdict["session_id"], verdict["end_sequence"]) == (True, newest, 1)

    @pytest.mark.parametrize("cut", [0, 10, 9_000, 100_000, 0.5, 0.99999, 1.0])
    def test_goes_on_with_what_an_earlier_run_left(self, made: World, session_id: str, tmp_path: Path, cut: float) -> None:
        path, part = tmp_path / "x", tmp_path / "x.part"
        run(made, session_id, "-o", str(path))
        whole = path.read_bytes()
        path.unlink()
        part.write_bytes(whole[: int(cut * len(whole))] if cut <= 1 else whole[: int(cut)])
        assert run(made, session_id, "-o", str(path), "--resume", "--verify").exit_code == 0
        assert path.read_bytes() == whole
        assert not part.exists()

    def test_keeps_to_the_end_that_the_first_run_named(self, made: World, tmp_path: Path) -> None:
        path, part = tmp_path / "x", tmp_path / "x.part"
        with Client(made.url, made.secret()) as client:
            session = client.create_session().session_id
            client.append(session, message("before"))
            run(made, session, "-o", str(path))
            whole = path.read_bytes()
            part.write_bytes(whole[:-200])
            client.append(session, message("after"))
        run(made, session, "-o", str(path), "--resume")
        assert path.read_bytes() == whole

    def test_does_not_go_on_with_what_is_damaged_or_of_another_session(self, made: World, session_id: str, tmp_path: Path) -> None:
        part = tmp_path / "x.part"
        part.write_bytes(b"".join([*OFFLINE.lines()[:3]]))
        with pytest.raises(Invalid, match=r"x\.part: holds sess_"):
            run(made, session_id, "-o", str(tmp_path / "x"), "--resume")
        part.write_bytes(b"".join(OFFLINE.lines()))
        with pytest.raises(Invalid, match=r"x\.part: holds sess_"):
            run(made, session_id, "-o", str(tmp_path / "x"), "--resume")
        run(made, session_id, "-o", str(tmp_path / "y"))
        lines = (tmp_path / "y").read_bytes().splitlines(keepends=True)
        part.write_bytes(b"".join([*lines[:5], lines[6]]))
        with pytest.raises(Invalid, match="gap: line 6, position 5"):
            run(made, session_id, "-o", str(tmp_path / "x"), "--resume")
        assert part.exists()

    def test_says_so_where_it_is_there_already(self, made: World, session_id: str, tmp_path: Path) -> None:
        run(made, session_id, "-o", str(tmp_path / "x"))
        assert "is there already" in run(made, session_id, "-o", str(tmp_path / "x"), "--resume").stderr

    def test_where_nothing_can_be_written(self, made: World, session_id: str, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match="No such file"):
            run(made, session_id, "-o", str(tmp_path / "nowhere" / "x"))

    def test_of_what_is_not_there_for_this_key(self, made: World, session_id: str, tmp_path: Path) -> None:
        with pytest.raises(ClientFailed) as failed:
            run(made, session_id, "-o", str(tmp_path / "x"), workspace_id=OTHER_WORKSPACE)
        assert failed.value.exit_code == 1
        assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def forked(made: World) -> tuple[str, str]:
    """A session, and its fork at position 250."""
    with Client(made.url, made.secret()) as client:
        source = client.create_session().session_id
        client.append_many(source, [message(f"text {number}") for number in range(300)])
        at = json.loads(client.request("GET", f"/v1/sessions/{source}/events?after_sequence=249&limit=1").body)["events"][0]
        answer = client.request("POST", f"/v1/sessions/{source}/forks", {"at_event": at["event_id"]})
        return source, str(json.loads(answer.body)["session_id"])


class TestALineage:
    def test_is_written_behind_its_ancestors_and_checked_with_them(self, made: World, forked: tuple[str, str], tmp_path: Path) -> None:
        path, (source, fork) = tmp_path / "fork.ndjson", forked
        assert run(made, fork, "--lineage", "-o", str(path), "--verify").exit_code == 0
        verdict = verify(path, lineage=True)
        assert [(each, end) for each, end, _ in verdict.ancestors] == [(source, 250)]
        assert run(None, "--verify", "--lineage", str(path)).exit_code == 0
        assert run(made, fork, "--lineage").stdout == path.read_text(encoding="utf-8")

    def test_a_fork_alone_is_not_one(self, made: World, forked: tuple[str, str], tmp_path: Path) -> None:
        path = tmp_path / "alone.ndjson"
        assert run(made, forked[1], "-o", str(path), "--verify").exit_code == 0
        result = run(None, "--verify", "--lineage", str(path))
        assert (result.exit_code, "not_whole" in result.stdout) == (1, True)

    def test_is_not_resumed(self, made: World, forked: tuple[str, str], tmp_path: Path) -> None:
        assert run(made, forked[1], "--lineage", "--resume", "-o", str(tmp_path / "x")).exit_code == 2


class TestToStandardOutput:
    def test_is_the_export_alone(self, made: World, session_id: str) -> None:
        assert verify(run(made, session_id).stdout_bytes.splitlines(keepends=True)).ok

    def test_and_the_verdict_goes_aside(self, made: World, session_id: str) -> None:
        result = run(made, session_id, "--verify")
        assert verify(result.stdout_bytes.splitlines(keepends=True)).ok
        assert f"verified {session_id}" in result.stderr


class TestOffline:
    def test_a_file_is_verified_without_any_service(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"".join(OFFLINE.lines()))
        result = run(None, "--verify", str(path))
        assert (result.exit_code, result.stdout.split()[0]) == (0, "verified")

    def test_what_is_wrong_is_told_with_status_1(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        lines = OFFLINE.lines()
        path.write_bytes(b"".join([*lines[:3], changed(lines[3], "type", to="source.recorded"), *lines[4:]]))
        result = run(None, "--verify", str(path))
        assert (result.exit_code, result.stdout.split(":")[0]) == (1, "NOT VERIFIED attributes_mismatch")
        told = json.loads(run(None, "--verify", str(path), "--json").stdout)
        assert (told["ok"], told["code"], told["line"], told["sequence"]) == (False, "attributes_mismatch", 4, 3)

    def test_a_hash_known_from_elsewhere_is_compared(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"".join(OFFLINE.lines()))
        assert run(None, "--verify", str(path), "--last-hash", "0" * 64).exit_code == 1
        assert run(None, "--verify", str(path), "--last-hash", str(verify(path).last_hash)).exit_code == 0

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="No such file"):
            run(None, "--verify", str(tmp_path / "x"))

    def test_a_wrong_command_line(self) -> None:
        assert run(None, "some.file").exit_code == 2
        assert run(None, "--resume").exit_code == 2
