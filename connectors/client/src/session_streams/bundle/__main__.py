"""`python -m session_streams.bundle verify|show FILE --trust FILE`.

Exit status: 0 verified, 1 not verified, 2 a file cannot be read, or nobody takes the answer.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict

from .form import SECTIONS
from .verdict import Refuted, Verdict
from .verifying import items, verify


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="session_streams.bundle", description="Checks and shows Session Bundles, offline.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, says in (("verify", "check a bundle"), ("show", "check a bundle, and tell what it holds")):
        command = commands.add_parser(name, help=says)
        command.add_argument("file", help="the bundle")
        command.add_argument("--trust", required=True, metavar="FILE", help="the installation's trust.json, from somebody you believe")
        command.add_argument("--json", action="store_true", help="as JSON")
        if name == "show":
            command.add_argument("--section", choices=SECTIONS, help="its items, one a line")
        else:
            command.add_argument("--session", metavar="ID", help="the session that it has to be of")
            command.add_argument("--last-hash", metavar="HEX", help="the hash that it has to end with, known from elsewhere")
            command.add_argument("--end-sequence", type=int, metavar="N", help="the position that it has to reach")
    given = parser.parse_args(arguments)
    try:
        if given.command == "verify":
            verdict = verify(given.file, given.trust, session_id=given.session, last_hash=given.last_hash, end_sequence=given.end_sequence)
            return tell(verdict, as_json=given.json)
        return show(given.file, given.trust, given.section, as_json=given.json)
    except BrokenPipeError:
        # Whoever read it has seen enough (`| head`); the interpreter must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except OSError as error:
        print(f"{error.filename or given.file}: {error.strerror or error}", file=sys.stderr)
        return 2


def tell(verdict: Verdict, *, as_json: bool) -> int:
    """Prints it; gives the exit status."""
    print(json.dumps({"ok": verdict.ok, **asdict(verdict)}) if as_json else verdict, flush=True)
    return 0 if verdict.ok else 1


def show(file: str, trust: str, section: str | None, *, as_json: bool) -> int:
    """What a bundle that verifies holds: its sections and gaps, or the items of one. Of any other only what is wrong with it."""
    if section is None:
        verdict = verify(file, trust)
        if as_json or not verdict.ok:
            return tell(verdict, as_json=as_json)
        workspace_id = ascii(str(verdict.workspace_id))[1:-1]
        print(f"{verdict.session_id} of {workspace_id}, positions 1 to {verdict.end_sequence}, last hash {verdict.last_hash}")
        print(f"signed by {verdict.key_id}")
        for each in verdict.sections:
            print(f"  {each}")
        sys.stdout.flush()
        return 0
    try:
        for item in items(file, trust, section):
            # Escaped: a terminal obeys some characters, and takes others in its own encoding only.
            print(json.dumps(item))
        sys.stdout.flush()
    except Refuted as refuted:
        print(f"NOT VERIFIED {refuted}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
