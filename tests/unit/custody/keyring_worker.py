"""A process of its own for tests of the keyring: `python keyring_worker.py MODE DIRECTORY`.

race    wait for a line on stdin, then print the pseudonyms and secrets that everybody asks for
create  create secrets in four threads until killed; print each (name, hex) after the keyring has answered
open    print the id of the key file
"""

import os
import sys
import threading
from pathlib import Path

from streams.custody.keyring import SecretRef
from streams.custody.local_keys import LocalKeyFile
from streams.custody.sqlite_keyring import SqliteKeyring, open_local_keyring

WORKSPACE = "ws_" + "1" * 32


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def race(directory: Path) -> None:
    say("ready")
    sys.stdin.readline()
    keyring = open_local_keyring(directory)
    say(keyring.identity_key(WORKSPACE).hex())
    for number in range(50):
        say(str(keyring.pseudonym(WORKSPACE, "subject", f"name {number}", create=True)))
        ref = SecretRef("session", WORKSPACE, f"sess_{number:032x}")
        say(keyring.secrets([ref], create=True)[ref].hex())
    keyring.close()


def create(directory: Path) -> None:
    keyring = open_local_keyring(directory)
    for _ in range(3):
        threading.Thread(target=_create_for_ever, args=(keyring,), daemon=True).start()
    _create_for_ever(keyring)


def _create_for_ever(keyring: SqliteKeyring) -> None:
    while True:
        ref = SecretRef("session", WORKSPACE, f"sess_{os.urandom(16).hex()}")
        say(f"{ref.id} {keyring.secrets([ref], create=True)[ref].hex()}")


def open_key_file(directory: Path) -> None:
    say("ready")
    sys.stdin.readline()
    say(LocalKeyFile(directory / "workspace.key").key_id)


if __name__ == "__main__":
    {"race": race, "create": create, "open": open_key_file}[sys.argv[1]](Path(sys.argv[2]))
