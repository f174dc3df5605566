"""`session-streams bundle` and `trust`: against a gateway whose log is in memory, and offline."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from connectors.cli.main import app
from connectors.cli.usage import ClientFailed
from session_streams import Client
from session_streams.bundle import SECTIONS, verify
from session_streams.bundle.__main__ import main
from streams.custody.signers import Signers
from streams.custody.signing import SigningKey
from streams.errors import Invalid, Misconfigured, NotFound
from streams.settings import Settings
from tests.support.bundles import bundle_of, history, trust_of
from tests.support.examples import SESSION, made_up_id
from tests.support.gateway import OTHER_WORKSPACE, World, message

KEY = SigningKey.generate()
GOOD = bundle_of(history().lines(), KEY)


@pytest.fixture(scope="module")
def session_id(made: World) -> str:
    with Client(made.url, made.secret()) as client:
        session = client.create_session(subject="mia")
        client.append_many(session.session_id, [message(f"text {number}") for number in range(5)])
        return session.session_id


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "x.bundle").write_bytes(GOOD)
    (tmp_path / "trust.json").write_bytes(trust_of(KEY))
    return tmp_path / "x.bundle"


def run(*arguments: str | Path) -> Result:
    """What the command answers; an error that it raises is raised here."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def create(made: World, *arguments: str | Path, **key: str) -> Result:
    return run("bundle", "create", *arguments, "--url", made.url, "--api-key", made.secret(**key))


def check(file: Path, *arguments: str | Path, command: str = "verify") -> Result:
    return run("bundle", command, file, "--trust", file.parent / "trust.json", *arguments)


class TestCreate:
    def test_writes_a_bundle_that_only_its_owner_may_read(self, made: World, session_id: str, tmp_path: Path) -> None:
        path = tmp_path / "x.bundle"
        result = create(made, session_id, "-o", path)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"{path}: {path.stat().st_size} bytes\n"
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(tmp_path.iterdir()) == [path]
        assert run("bundle", "verify", path, "--data-dir", made.settings.data_dir).exit_code == 0

    def test_names_it_after_the_newest_session_where_nothing_is_named(
        self, made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with Client(made.url, made.secret()) as client:
            newest = client.create_session().session_id
        assert create(made).exit_code == 0
        assert [path.name for path in tmp_path.iterdir()] == [f"{newest}.bundle"]

    def test_as_the_session_was_earlier(self, made: World, session_id: str, tmp_path: Path) -> None:
        create(made, session_id, "-o", tmp_path / "x", "--end-sequence", "3")
        trust = made.settings.signers_path / "trust.json"
        assert verify(tmp_path / "x", trust).end_sequence == 3

    def test_leaves_nothing_behind_where_it_is_refused(self, made: World, session_id: str, tmp_path: Path) -> None:
        with pytest.raises(ClientFailed) as failed:
            create(made, session_id, "-o", tmp_path / "x", workspace_id=OTHER_WORKSPACE)
        assert failed.value.exit_code == 1
        with pytest.raises(ClientFailed, match="end_sequence: the session stands at 6"):
            create(made, session_id, "-o", tmp_path / "x", "--end-sequence", "9")
        assert list(tmp_path.iterdir()) == []

    def test_and_keeps_what_was_there_before(self, made: World, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(GOOD)
        with pytest.raises(ClientFailed):
            create(made, made_up_id("sess", "none"), "-o", path)
        assert (list(tmp_path.iterdir()), path.read_bytes()) == ([path], GOOD)

    def test_what_an_earlier_run_left_is_begun_anew_and_shown_to_nobody(self, made: World, session_id: str, tmp_path: Path) -> None:
        part = tmp_path / "x.part"
        part.write_bytes(b"longer than any bundle of a short session" * 1000)
        part.chmod(0o644)
        create(made, session_id, "-o", tmp_path / "x")
        assert [path.name for path in tmp_path.iterdir()] == ["x"]
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("place", ["nowhere/x", "file/x", "folder", "taken"])
    def test_where_nothing_can_be_written(self, made: World, session_id: str, tmp_path: Path, place: str) -> None:
        (tmp_path / "file").write_bytes(b"")
        for folder in ("folder", "taken.part"):
            (tmp_path / folder).mkdir()
        before = sorted(tmp_path.iterdir())
        with pytest.raises(Misconfigured):
            create(made, session_id, "-o", tmp_path / place)
        assert sorted(tmp_path.iterdir()) == before

    @pytest.mark.parametrize("arguments", [["some.file"], ["-o", ""], ["--end-sequence", "0"]])
    def test_a_wrong_command_line(self, made: World, arguments: list[str]) -> None:
        assert create(made, *arguments).exit_code == 2


class TestVerify:
    def test_says_what_it_is_and_what_is_not_in_it(self, file: Path) -> None:
        result = check(file)
        assert (result.exit_code, result.stdout.split(":")[0]) == (0, f"verified {SESSION}")
        assert "gap in artifacts: 2 bytes not held" in result.stdout
        told = json.loads(check(file, "--json").stdout)
        assert (told["ok"], told["code"], told["key_id"]) == (True, "verified", KEY.public.key_id)
        assert [section["name"] for section in told["sections"]] == list(SECTIONS)

    @pytest.mark.parametrize("cut", [0, 100, len(GOOD) - 1])
    def test_a_file_that_is_none_is_told_with_status_1(self, file: Path, cut: int) -> None:
        file.write_bytes(GOOD[:cut])
        result = check(file)
        assert (result.exit_code, result.stdout.split(":")[0]) == (1, "NOT VERIFIED malformed_envelope")
        told = json.loads(check(file, "--json").stdout)
        assert (told["ok"], told["code"], told["session_id"], told["sections"]) == (False, "malformed_envelope", None, [])

    def test_signed_by_nobody_who_is_trusted(self, file: Path) -> None:
        (file.parent / "trust.json").write_bytes(trust_of(SigningKey.generate()))
        assert (check(file).exit_code, json.loads(check(file, "--json").stdout)["code"]) == (1, "unknown_key")
        (file.parent / "trust.json").write_bytes(trust_of(KEY, revoked=True))
        assert (check(file).exit_code, json.loads(check(file, "--json").stdout)["code"]) == (1, "revoked_key")

    def test_what_is_known_from_elsewhere_is_compared(self, file: Path) -> None:
        whole = verify(file, file.parent / "trust.json")
        known: list[tuple[list[str], str]] = [
            (["--session", SESSION], "verified"),
            (["--session", made_up_id("sess", "other")], "other_session"),
            (["--last-hash", str(whole.last_hash).upper()], "verified"),
            (["--last-hash", "0" * 64], "other_history"),
            (["--end-sequence", str(whole.end_sequence)], "verified"),
            (["--end-sequence", str(whole.end_sequence + 1)], "too_short"),
        ]
        for arguments, code in known:
            result = check(file, *arguments, "--json")
            assert (json.loads(result.stdout)["code"], result.exit_code) == (code, 0 if code == "verified" else 1)

    def test_takes_the_keys_of_the_data_folder_where_none_are_named(self, file: Path, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="name the public keys of who signed it with --trust"):
            run("bundle", "verify", file, "--data-dir", tmp_path)
        (tmp_path / "signers").mkdir()
        (tmp_path / "signers" / "trust.json").write_bytes(trust_of(KEY))
        assert run("bundle", "verify", file, "--data-dir", tmp_path).exit_code == 0

    def test_asks_no_schema_registry(self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SESSION_STREAMS_REGISTRY_URL", "http://127.0.0.1:1")
        (tmp_path / "signers").mkdir()
        (tmp_path / "trust.json").rename(tmp_path / "signers" / "trust.json")
        assert run("bundle", "verify", file, "--data-dir", tmp_path).exit_code == 0

    def test_a_file_that_cannot_be_read(self, file: Path) -> None:
        with pytest.raises(Invalid, match=r"y\.bundle: No such file"):
            check(file.with_name("y.bundle"))
        pipe = file.with_name("pipe")
        os.mkfifo(pipe)
        reader, writer = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), os.open(pipe, os.O_WRONLY)
        try:
            with pytest.raises(Invalid, match=r"pipe: .*not seekable"):
                check(pipe)
        finally:
            os.close(reader)
            os.close(writer)


class TestShow:
    def test_tells_each_section_with_its_gaps(self, file: Path) -> None:
        result = check(file, command="show")
        first, signed, *sections = result.stdout.splitlines()
        assert result.exit_code == 0
        assert first.startswith(f"{SESSION} of ws_")
        assert signed == f"signed by {KEY.public.key_id}"
        assert [re.match(r"  ([a-z-]+): \d+", line)[1] for line in sections] == list(SECTIONS)  # type: ignore[index]
        assert json.loads(check(file, "--json", command="show").stdout) == json.loads(check(file, "--json").stdout)

    def test_tells_the_items_of_one_section(self, file: Path) -> None:
        lines = check(file, "--section", "interactions", command="show").stdout.splitlines()
        assert [json.loads(line)["kind"] for line in lines] == ["wait", "approval"]
        events = check(file, "--section", "events", command="show").stdout.splitlines()
        assert [json.loads(events[place])["kind"] for place in (0, 1, -1)] == ["header", "event", "trailer"]

    def test_tells_nothing_of_what_does_not_verify(self, file: Path) -> None:
        file.write_bytes(GOOD.replace(b'"kind":"run"', b'"kind":"ran"'))
        result = check(file, "--section", "actors", command="show")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("NOT VERIFIED section_mismatch")
        result = check(file, command="show")
        assert (result.exit_code, result.stdout.split(":")[0]) == (1, "NOT VERIFIED section_mismatch")

    def test_a_section_that_there_is_none_of(self, file: Path) -> None:
        result = check(file, "--section", "manifest", command="show")
        assert result.exit_code == 2
        assert "continuation-capsules" in result.stderr

    def test_ends_quietly_where_nobody_takes_more(self, file: Path) -> None:
        """Of the module that strangers run: the reader is gone before the first line."""
        reader, writer = os.pipe()
        os.close(reader)
        argv = [sys.executable, "-m", "session_streams.bundle", "show", str(file), "--section", "events"]
        done = subprocess.run(
            [*argv, "--trust", str(file.parent / "trust.json")], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=30, check=False
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (2, "")


class TestTheModuleOfTheClient:
    def test_has_the_same_words_and_statuses(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        trust = ["--trust", str(file.parent / "trust.json")]
        assert main(["verify", str(file), *trust]) == 0
        assert capsys.readouterr().out == check(file).stdout
        assert main(["show", str(file), *trust, "--section", "work"]) == 0
        assert capsys.readouterr().out == check(file, "--section", "work", command="show").stdout
        assert main(["verify", str(file), *trust, "--last-hash", "0" * 64]) == 1
        assert main(["verify", str(file.with_name("y")), *trust]) == 2
        assert "y: No such file" in capsys.readouterr().err


class TestTrust:
    def test_of_an_installation_that_has_signed_nothing(self, tmp_path: Path) -> None:
        assert run("trust", "show", "--data-dir", tmp_path).stdout == "key\tpurpose\tcreated\tretired\trevoked\n"
        assert json.loads(run("trust", "show", "--data-dir", tmp_path, "--json").stdout)["keys"] == []
        assert list(tmp_path.iterdir()) == []

    def test_a_key_is_followed_by_another_and_what_it_signed_stays_good_until_it_is_revoked(self, file: Path, tmp_path: Path) -> None:
        folder = tmp_path / "data"
        signers = Signers(Settings(data_dir=folder).signers_path)
        file.write_bytes(bundle_of(history().lines(), signers.current("bundles")))
        made = json.loads(run("trust", "rotate", "bundles", "--data-dir", folder, "--json").stdout)
        assert signers.current("bundles").public.key_id == made["key_id"]
        (old, new) = [line.split("\t") for line in run("trust", "show", "--data-dir", folder).stdout.splitlines()[1:]]
        assert ((old[3] != "-", old[4]), new[:2], new[3:]) == ((True, "-"), [made["key_id"], "bundles"], ["-", "-"])
        assert run("bundle", "verify", file, "--data-dir", folder).exit_code == 0
        result = run("trust", "revoke", old[0], "--data-dir", folder)
        assert (result.exit_code, result.stdout, result.stderr.split(" is")[0]) == (0, "", f"{old[0]} (bundles)")
        assert "revoked_key" in run("bundle", "verify", file, "--data-dir", folder).stdout

    def test_what_it_shows_as_json_is_what_others_check_with(self, file: Path, tmp_path: Path) -> None:
        signers = Signers(Settings(data_dir=tmp_path).signers_path)
        file.write_bytes(bundle_of(history().lines(), signers.current("bundles")))
        (tmp_path / "trust.json").write_text(run("trust", "show", "--data-dir", tmp_path, "--json").stdout)
        assert check(file).exit_code == 0

    def test_an_unknown_key_and_an_unknown_purpose(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="no key abc"):
            run("trust", "revoke", "abc", "--data-dir", tmp_path)
        assert run("trust", "rotate", "journeys", "--data-dir", tmp_path).exit_code == 2

    def test_its_help_tells_it_apart_from_whose_observations_count(self) -> None:
        assert "support trust" in run("trust", "--help").stdout
