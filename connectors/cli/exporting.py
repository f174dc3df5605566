"""`export`: a session into a file that anybody can check, and the check of such a file.

- A file has its name once it is whole; until then it is `<name>.part`, which `--resume` goes on with.
- What `--resume` finds is verified before anything is added, and what is added must be of the same export.
- Files hold content in clear, so only their owner may read them.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from connectors.cli.console import emit_json, progress, remark
from session_streams import Client, ExportChanged, SessionStreamsError
from session_streams.export import Verdict, verify
from streams.errors import Invalid, Misconfigured

_TELL_EVERY: Final = 100


def export_to_file(
    client: Client, session_id: str, path: Path, *, resume: bool = False, quiet: bool = False, lineage: bool = False
) -> None:
    """Raises `Invalid` where what is to be resumed is damaged, `Misconfigured` where nothing can be written, and what the client raises."""
    part = path.with_name(path.name + ".part")
    if resume and path.exists() and not part.exists():
        remark(f"{path} is there already")
        return
    try:
        with _opened(part, keep=resume) as file:
            begun = _begun(part, session_id) if resume else Verdict()
            if not begun.ok or not begun.good_bytes:
                file.truncate(begun.good_bytes)
                file.seek(begun.good_bytes)
                _take(client, session_id, begun, file, part, quiet=quiet, lineage=lineage)
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise Misconfigured(f"{error.filename or part}: {error.strerror}") from error


def export_to_stdout(
    client: Client, session_id: str, *, check: bool, last_hash: str | None = None, lineage: bool = False
) -> Verdict | None:
    """Writes the export to standard output; the verdict on it where it is to be checked."""
    out = sys.stdout.buffer
    passing = _passing(_told(client, session_id, Verdict(), quiet=False, lineage=lineage), out)
    if check:
        verdict = verify(passing, last_hash=last_hash, lineage=lineage)
        out.flush()
        return verdict
    for _ in passing:
        pass
    out.flush()
    return None


def check_file(path: str, *, last_hash: str | None = None, lineage: bool = False) -> Verdict:
    """The verdict on a file (`-`: standard input), by nothing but the file. Raises `Invalid` where it cannot be read."""
    try:
        return verify(sys.stdin.buffer if path == "-" else path, last_hash=last_hash, lineage=lineage)
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}") from error


def tell(verdict: Verdict, *, as_json: bool, aside: bool = False) -> None:
    """`aside`: standard output has the export itself."""
    told = {"ok": verdict.ok, **asdict(verdict)}
    if aside:
        remark(msgspec.json.encode(told).decode() if as_json else str(verdict))
    elif as_json:
        emit_json(told)
    else:
        print(verdict, flush=True)


def _opened(part: Path, *, keep: bool) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | (0 if keep else os.O_TRUNC)
    return os.fdopen(os.open(part, flags, 0o600), "r+b")


def _begun(part: Path, session_id: str) -> Verdict:
    """How far the file is. Raises `Invalid` where it cannot be gone on with."""
    verdict = verify(part)
    same = verdict.session_id in (None, session_id)
    if same and (verdict.ok or verdict.code == "incomplete"):
        return verdict
    what = str(verdict) if same else f"holds {verdict.session_id}"
    raise Invalid(f"{part}: {what}; remove it, or export without --resume")


def _take(client: Client, session_id: str, begun: Verdict, file: BinaryIO, part: Path, *, quiet: bool, lineage: bool) -> None:
    header = _header(part) if begun.good_bytes else None
    try:
        for line in _told(client, session_id, begun, quiet=quiet, header=header, lineage=lineage):
            file.write(line)
        file.flush()
    except (KeyboardInterrupt, SessionStreamsError):
        file.flush()
        if not lineage:
            remark(f"{part} holds what has come; --resume goes on with it")
        raise


def _header(part: Path) -> bytes:
    with part.open("rb") as file:
        return file.readline()


def _told(
    client: Client, session_id: str, begun: Verdict, *, quiet: bool, header: bytes | None = None, lineage: bool = False
) -> Iterator[bytes]:
    """The lines that are still to come. `header`: the one that the file has; the answer's own must say the same."""
    end = begun.end_sequence or None
    lines = client.export(session_id, from_sequence=begun.next_sequence, end_sequence=end, lineage=lineage)
    with progress("export", "events", quiet=quiet) as report:
        for count, line in enumerate(lines):
            if count == 0:
                given = json.loads(line)
                end = None if lineage else given["end_sequence"]
                if header is not None:
                    if {**json.loads(header), "from_sequence": begun.next_sequence} != given:
                        raise ExportChanged(f"the service exports {session_id} otherwise than the file begins: export it anew")
                    continue
            done = begun.next_sequence - 1 + count
            if count % _TELL_EVERY == 0 or done == end:
                report(done, end)
            yield line


def _passing(lines: Iterable[bytes], out: BinaryIO) -> Iterator[bytes]:
    for line in lines:
        out.write(line)
        yield line
