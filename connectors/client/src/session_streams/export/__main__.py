"""`python -m session_streams.export FILE`. Exit status: 0 verified, 1 not verified, 2 the file cannot be read."""

import argparse
import sys

from .reading import verify


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="session_streams.export", description="Verifies the export of a session, offline.")
    parser.add_argument("file", help="the export; - reads standard input")
    parser.add_argument("--part", action="store_true", help="a part that begins behind position 1 will do")
    parser.add_argument("--last-hash", metavar="HEX", help="the hash that it has to end with, known from elsewhere")
    parser.add_argument("--lineage", action="store_true", help="a fork without its ancestors will not do")
    given = parser.parse_args(arguments)
    try:
        source = sys.stdin.buffer if given.file == "-" else given.file
        verdict = verify(source, part=given.part, last_hash=given.last_hash, lineage=given.lineage)
    except OSError as error:
        print(f"{given.file}: {error.strerror}", file=sys.stderr)
        return 2
    print(verdict)
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
