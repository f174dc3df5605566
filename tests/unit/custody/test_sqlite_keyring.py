"""The SQLite keyring: the contract, then what only files and processes can show."""

import base64
import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from streams.custody.group_commit import connect, exclusive
from streams.custody.keyring import SecretRef
from streams.custody.local_keys import LocalKeyFile
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring
from streams.errors import ContentUnavailable, Invalid, KeyringUnavailable, Misconfigured
from tests.contract.keyring_contract import WORKSPACE, KeyringContract, day, session, subject

StartWorker = Callable[[str], "subprocess.Popen[str]"]


class TestSqliteKeyring(KeyringContract):
    """Fixture `open_keyring` comes from the conftest."""


def files_of(directory: Path) -> dict[str, bytes]:
    """Contents as another process sees them: opening and closing SQLite's files in this one would give up its locks."""
    return {path.name: subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout for path in directory.iterdir()}


def found_in(directory: Path, needles: Collection[bytes]) -> set[bytes]:
    """Which of the secrets stand in a file of the folder: raw, base64 or hex."""
    contents = b"\0".join(files_of(directory).values())
    return {n for n in needles if any(form in contents for form in (n, base64.b64encode(n), n.hex().encode(), n.hex().upper().encode()))}


def whole_lines(text: str) -> list[str]:
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wrapped_secrets(directory: Path) -> dict[str, bytes]:
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as connection:
        return dict(connection.execute("SELECT name, wrapped FROM secrets").fetchall())


def test_processes_that_start_together_agree_on_every_key_secret_and_pseudonym(start_worker: StartWorker) -> None:
    """Four processes race from an empty folder: key file, database, workspace, 50 names, 50 secrets."""
    workers = [start_worker("race") for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=60)[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len(answers[0]) == 101
    assert all(answer == answers[0] for answer in answers)


def test_what_was_answered_survives_kill_9_and_stops_nobody(start_worker: StartWorker, directory: Path) -> None:
    """One process creates all the time, others are killed in the middle of creating, again and again."""
    survivor = start_worker("create")
    answered: list[str] = []
    assert survivor.stdout is not None
    for _ in range(5):
        victim = start_worker("create")
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(40)]
        victim.send_signal(signal.SIGKILL)
        answered += whole_lines("".join(lines) + victim.stdout.read())
        answered += [survivor.stdout.readline() for _ in range(40)]
    survivor.send_signal(signal.SIGKILL)
    answered += whole_lines(survivor.stdout.read())

    told = {SecretRef("session", WORKSPACE, line.split()[0]): bytes.fromhex(line.split()[1]) for line in answered}
    with contextlib.closing(open_local_keyring(directory)) as keyring:
        assert len(told) >= 400
        assert keyring.secrets(told, create=False) == told


def test_what_was_answered_stands_in_the_files_already(keyring: SqliteKeyring, directory: Path, tmp_path: Path) -> None:
    """Power is cut right after the answer: only what the files hold at that moment comes back."""
    secrets = keyring.secrets([session(), subject(), day()], create=True)
    mia = keyring.pseudonym(WORKSPACE, "subject", "mia", create=True)
    after_power_cut = tmp_path / "after"
    after_power_cut.mkdir()
    for name, contents in files_of(directory).items():
        if not name.endswith("-shm"):
            (after_power_cut / name).write_bytes(contents)
            (after_power_cut / name).chmod(0o600)
    with contextlib.closing(open_local_keyring(after_power_cut)) as restored:
        assert restored.secrets(secrets, create=False) == secrets
        assert restored.pseudonym(WORKSPACE, "subject", "mia", create=False) == mia


def test_connections_sync_every_commit_and_overwrite_what_is_deleted(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.identity_key(WORKSPACE)
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as connection:
        pragmas = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "secure_delete")]
    assert pragmas == ["wal", 2, 1]


def test_only_the_owner_may_read_the_files(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.secrets([session()], create=True)
    names = ("workspace.key", "keyring.sqlite", "keyring.sqlite-wal", "keyring.sqlite-shm", "keyring.sqlite.lock")
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == dict.fromkeys(names, 0o600)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_after_destroy_no_file_holds_a_trace_of_the_secrets(open_keyring: Callable[[], SqliteKeyring], directory: Path) -> None:
    """Thousands of secrets, pages split and checkpoints passed, created by two keyrings; half are destroyed while both are open.

    The same search finds the wrapped secrets before, and the others' after: it can fail.
    """
    keyrings = [open_keyring(), open_keyring()]
    unwrapped: dict[SecretRef, bytes] = {}
    for number in range(30):
        refs = [session(number * 100 + index) for index in range(90)] + [subject(number * 100 + index) for index in range(10)]
        unwrapped |= keyrings[number % 2].secrets(refs, create=True)
    wrapped = wrapped_secrets(directory)
    doomed = [ref for index, ref in enumerate(unwrapped) if index % 2]
    kept = [ref for index, ref in enumerate(unwrapped) if not index % 2]
    needles = {wrapped[ref.name] for ref in doomed}
    assert len(needles) == 1500
    assert found_in(directory, needles) == needles

    keyrings[0].destroy(doomed[:-5])
    for ref in doomed[-5:]:
        keyrings[1].destroy([ref])

    assert found_in(directory, needles) == set()
    assert found_in(directory, list(unwrapped.values())) == set()
    others = {wrapped[ref.name] for ref in kept}
    assert found_in(directory, others) == others
    assert keyrings[1].secrets(kept, create=False) == {ref: unwrapped[ref] for ref in kept}


def test_after_destroy_no_piece_of_the_keyed_hashes_of_names_is_left(keyring: SqliteKeyring, directory: Path) -> None:
    """600 people come and every second one is erased, some of them in both roles. Pieces of 8 bytes are searched."""
    people = {f"name {number}": str(keyring.pseudonym(WORKSPACE, "subject", f"name {number}", create=True)) for number in range(600)}
    for name in list(people)[:100]:
        keyring.pseudonym(WORKSPACE, "actor", name, create=True)
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as connection:
        hashes = dict(connection.execute("SELECT pseudonym, outside_hash FROM pseudonyms").fetchall())
    erased, kept = list(people.values())[::2], list(people.values())[1::2]
    pieces = {hashes[pseudonym][start : start + 8] for pseudonym in erased for start in (0, 8, 16, 24)}
    assert found_in(directory, pieces) == pieces
    keyring.destroy([SecretRef("subject", WORKSPACE, pseudonym) for pseudonym in erased])
    assert found_in(directory, pieces) == set()
    assert found_in(directory, [hashes[pseudonym] for pseudonym in kept]) == {hashes[pseudonym] for pseudonym in kept}


def test_names_never_stand_in_clear(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True)
    assert found_in(directory, [b"mia_li_3668"]) == set()


def test_a_destruction_does_not_count_while_a_reader_keeps_the_log(directory: Path) -> None:
    """Somebody else (a backup, say) reads from before the destruction: refused, saying so; reads refuse at once all the same."""
    keyring = SqliteKeyring(directory / "keyring.sqlite", LocalKeyFile(directory / "workspace.key"), truncate_timeout_s=0.1)
    keyring.secrets([session()], create=True)
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM secrets").fetchall()
        with pytest.raises(KeyringUnavailable, match="does not count, repeat it"):
            keyring.destroy([session()])
        assert keyring.secrets([session()], create=False) == {}
        assert keyring.secrets([session(1)], create=True)
        reader.execute("COMMIT")
    keyring.destroy([session()])
    assert files_of(directory)["keyring.sqlite-wal"] == b""
    keyring.close()


def test_a_stopped_holder_of_the_lock_makes_others_give_up_and_leave_the_line(directory: Path) -> None:
    keyring = SqliteKeyring(directory / "keyring.sqlite", LocalKeyFile(directory / "workspace.key"), timeout_s=0.3)
    keyring.identity_key(WORKSPACE)
    with exclusive(directory / "keyring.sqlite.lock"), pytest.raises(KeyringUnavailable, match="no turn to write"):
        keyring.secrets([session(1)], create=True)
    assert keyring.secrets([session(2)], create=True)
    assert keyring.secrets([session(1)], create=False) == {}
    keyring.close()


def test_a_locked_database_is_unavailable_and_comes_back(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.secrets([session(1)], create=True)
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as intruder:
        intruder.execute("BEGIN IMMEDIATE")
        with pytest.raises(KeyringUnavailable, match="locked"):
            keyring.secrets([session(2)], create=True)
        assert keyring.secrets([session(1)], create=True)
        intruder.execute("ROLLBACK")
    assert keyring.secrets([session(2)], create=True)


def test_a_damaged_file_is_unavailable(directory: Path) -> None:
    directory.mkdir()
    (directory / "keyring.sqlite").write_bytes(os.urandom(8192))
    with pytest.raises(KeyringUnavailable):
        open_local_keyring(directory)


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeyringUnavailable):
        open_local_keyring(tmp_path / "file" / "keyring")


def test_nothing_is_created_in_a_folder_that_is_gone_or_that_another_took_the_place_of(
    keyring: SqliteKeyring, directory: Path, tmp_path: Path
) -> None:
    """A secret that only a file without a name holds would be lost; one in a file of another key would open nowhere."""
    made = keyring.secrets([session(1)], create=True)
    away = directory.rename(tmp_path / "away")
    with pytest.raises(KeyringUnavailable):
        keyring.secrets([session(2)], create=True)
    with contextlib.closing(open_local_keyring(directory)) as other:
        other.secrets([session(1)], create=True)
        for change in (lambda: keyring.secrets([session(2)], create=True), lambda: keyring.destroy([session(1)])):
            with pytest.raises(KeyringUnavailable, match="start this process anew"):
                change()
        assert other.secrets([session(2)], create=False) == {}
    directory.rename(tmp_path / "other")
    away.rename(directory)
    assert keyring.secrets([session(1), session(2)], create=True).items() > made.items()


def test_a_newer_format_is_refused_at_the_start(keyring: SqliteKeyring, directory: Path) -> None:
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as connection:
        connection.execute("PRAGMA user_version=3")
    with pytest.raises(Misconfigured, match="format 3"):
        open_local_keyring(directory)


def test_a_lost_key_file_is_told_at_the_start(keyring: SqliteKeyring, directory: Path) -> None:
    """A new key file was made in the place of the lost one; nothing that the old one wrapped can be opened."""
    keyring.identity_key(WORKSPACE)
    (directory / "workspace.key").rename(directory / "elsewhere.key")
    with pytest.raises(Misconfigured, match="restore that file"):
        open_local_keyring(directory)


def test_a_workspace_key_replaced_meanwhile_wraps_nothing_new(keyring: SqliteKeyring, directory: Path) -> None:
    """Another process rotates the workspace key away; a process that knows the old one asks again and uses the new one."""
    keyring.secrets([session(1)], create=True)
    provider = LocalKeyFile(directory / "workspace.key")
    with contextlib.closing(sqlite3.connect(directory / "keyring.sqlite", isolation_level=None)) as connection:
        connection.execute(
            "UPDATE workspace_keys SET generation = 2, wrapped = ?, provider_key_id = ?",
            (provider.wrap(WORKSPACE, os.urandom(32)), provider.key_id),
        )
    assert keyring.secrets([session(2)], create=True)
    with contextlib.closing(sqlite3.connect(directory / "keyring.sqlite")) as connection:
        assert connection.execute("SELECT generation FROM secrets WHERE name = ?", (session(2).name,)).fetchone() == (2,)


def test_a_workspace_id_that_is_none_is_refused(keyring: SqliteKeyring) -> None:
    with pytest.raises(Invalid):
        keyring.identity_key("acme")


def test_a_refused_creation_tells_which_secret_by_name_only(keyring: SqliteKeyring) -> None:
    keyring.destroy([session(1)])
    with pytest.raises(ContentUnavailable, match=session(1).name):
        keyring.secrets([session(1)], create=True)


def test_a_keyring_of_the_format_before_learns_which_days_it_has(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.secrets([day("2031-02-03"), day("2031-02-04"), session()], create=True)
    keyring.destroy([day("2031-02-04")])
    keyring.close()
    with sqlite3.connect(directory / "keyring.sqlite") as connection:
        connection.executescript("DROP TABLE days; PRAGMA user_version=1;")
    opened = open_local_keyring(directory)
    assert opened.days_before("2032-01-01", 10) == [day("2031-02-03")]
    opened.close()


def test_a_rotation_that_was_broken_off_is_finished_by_the_next(
    keyring: SqliteKeyring, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [session(number) for number in range(10)]
    made = keyring.secrets(refs, create=True)
    monkeypatch.setattr("streams.custody.sqlite_rotation._ROWS_AT_ONCE", 4)
    rewrap, calls = keyring._rotation._rewrap, list[int]()

    def dies_after_one(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 2:
            raise KeyringUnavailable("killed here")
        return rewrap(*arguments)

    monkeypatch.setattr(keyring._rotation, "_rewrap", dies_after_one)
    with pytest.raises(KeyringUnavailable):
        keyring.rotate(WORKSPACE)
    other = open_local_keyring(directory)
    assert other.secrets(refs, create=False) == made
    assert other.rotate(WORKSPACE) == 6
    assert other.counts(WORKSPACE) == {"generation": 2, "session": 10}
    assert open_local_keyring(directory).secrets(refs, create=False) == made
    other.close()


def test_a_key_that_a_rotation_has_replaced_stands_in_no_file(keyring: SqliteKeyring, directory: Path) -> None:
    keyring.secrets([session(1)], create=True)
    with contextlib.closing(connect(directory / "keyring.sqlite", timeout_s=1)) as connection:
        ((wrapped,),) = connection.execute("SELECT wrapped FROM workspace_keys").fetchall()
    before = keyring._workspace_key(WORKSPACE, 1)
    keyring.rotate(WORKSPACE)
    assert found_in(directory, [wrapped, before]) == set()


def test_a_key_file_is_changed_with_the_old_one_beside_it(keyring: SqliteKeyring, directory: Path) -> None:
    made = keyring.secrets([session(1)], create=True)
    keyring.close()
    (directory / "workspace.key").rename(directory / "workspace.key.old")
    changed = open_local_keyring(directory)
    assert changed.secrets([session(1)], create=False) == made
    changed.rotate(WORKSPACE)
    changed.close()
    (directory / "workspace.key.old").unlink()
    alone = open_local_keyring(directory)
    assert alone.secrets([session(1)], create=False) == made
    alone.close()


def test_a_rotation_that_was_broken_off_before_the_key_file_was_changed_needs_the_old_one_no_longer(
    keyring: SqliteKeyring, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keyring.secrets([session(1)], create=True)
    monkeypatch.setattr(keyring._rotation, "finished", lambda *_: 0)
    keyring.rotate(WORKSPACE)
    keyring.close()
    (directory / "workspace.key").rename(directory / "workspace.key.old")
    changed = open_local_keyring(directory)
    changed.rotate(WORKSPACE)
    changed.close()
    (directory / "workspace.key.old").unlink()
    with contextlib.closing(open_local_keyring(directory)) as alone:
        assert alone.secrets([session(1)], create=False) == made
