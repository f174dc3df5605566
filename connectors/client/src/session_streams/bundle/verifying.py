"""The steps of a check, in the order in which docs/bundle.md has them: whoever is not known is not listened to any further."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from session_streams import export, signed
from session_streams.export.form import LINE_BYTES_MAX

from . import canonical
from .form import SECTIONS
from .manifest import Manifest, keys_of, manifest_of
from .verdict import Refuted, Section, Verdict

ENVELOPE_BYTES_MAX: Final = 1024 * 1024
ITEM_BYTES_MAX: Final = 4 * 1024 * 1024
"""With its line end. What an event has beside its content is far less, and an item tells that of two."""
_EXACT_MAX: Final = 2**53 - 1
_PIECE_BYTES: Final = 1024 * 1024

Source = str | Path | bytes
"""A path, or the bytes."""


def verify(
    file: Source, trust: Source, *, session_id: str | None = None, last_hash: str | None = None, end_sequence: int | None = None
) -> Verdict:
    """The verdict on a bundle. Raises OSError where a file cannot be read, and nothing else.

    Args:
        trust: the trust document (`trust.json`) of who made it, which has to have come from somebody who is believed.
        session_id: the session that it has to be of.
        last_hash: the hash (hex) that it has to end with, known from elsewhere.
        end_sequence: the position that it has to reach: an older bundle is as true as a newer one.
    """
    verdict = Verdict()
    with _opened(file) as opened:
        try:
            for manifest in _checked(opened, _read(trust)):
                verdict.told(manifest)
            _require_expected(verdict, session_id, last_hash, end_sequence)
        except Refuted as refuted:
            verdict.refute(refuted)
    return verdict


def items(file: Source, trust: Source, section: str) -> Iterator[dict[str, Any]]:
    """The items of a section, or the lines of `events`, of a bundle that verifies as a whole. Raises `Refuted`, OSError, and ValueError
    for a section that there is none of."""
    number = SECTIONS.index(section)
    with _opened(file) as opened:
        *_, manifest = _checked(opened, _read(trust))
        opened.seek(sum(each.bytes for each in manifest.sections[:number]))
        for line in _lines(opened, manifest.sections[number].bytes, LINE_BYTES_MAX):
            yield json.loads(line)


def _checked(file: BinaryIO, trust: bytes) -> Iterator[Manifest]:
    """The manifest as soon as it is known who signed it, and once more when everything behind it is verified. Raises `Refuted`."""
    keys = keys_of(trust)
    place, envelope = _last_line(file)
    manifest = manifest_of(envelope, keys)
    yield manifest
    if sum(each.bytes for each in manifest.sections) != place:
        raise Refuted("wrong_lengths", f"{place} bytes stand in front of the manifest, and it tells of others")
    file.seek(0)
    for section in manifest.sections:
        _require_digest(file, section)
        if section.name != SECTIONS[0]:
            _require_items(file, section)
    _require_events(file, manifest)
    yield manifest


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Where the envelope begins, and the envelope."""
    end = file.seek(0, os.SEEK_END)
    # A line end stands on both sides of it.
    start = file.seek(max(0, end - ENVELOPE_BYTES_MAX - 2))
    tail = file.read()
    if not tail.endswith(b"\n"):
        raise Refuted("malformed_envelope", "the file does not end with a line: it is cut, or none of a bundle")
    begins = tail.rfind(b"\n", 0, -1) + 1
    if (begins == 0 and start > 0) or len(tail) - begins - 1 > ENVELOPE_BYTES_MAX:
        raise Refuted("malformed_envelope", "the last line is longer than any envelope")
    return start + begins, tail[begins:-1]


def _require_digest(file: BinaryIO, section: Section) -> None:
    """That the next bytes are those that were signed, and have as many line ends as it says. Reads on to its end."""
    hashed, items, left, last = hashlib.sha256(), 0, section.bytes, b"\n"
    while left:
        piece = file.read(min(left, _PIECE_BYTES))
        if not piece:
            raise Refuted("wrong_lengths", "the file became shorter while it was read")
        hashed.update(piece)
        items, left, last = items + piece.count(b"\n"), left - len(piece), piece[-1:]
    if f"sha256:{hashed.hexdigest()}" != section.digest:
        raise Refuted("section_mismatch", "not the bytes that were signed", section=section.name)
    # The events stand between a header and a trailer.
    if last != b"\n" or items != section.items + (2 if section.name == SECTIONS[0] else 0):
        raise Refuted("manifest_untrue", f"it has not {section.items} items", section=section.name)


def _require_items(file: BinaryIO, section: Section) -> None:
    """That each line of the section that was just read to its end is an item."""
    file.seek(-section.bytes, os.SEEK_CUR)
    for line in _lines(file, section.bytes, ITEM_BYTES_MAX):
        try:
            told, spelled = canonical.parsed(line[:-1]) if len(line) <= ITEM_BYTES_MAX else (None, b"")
        except canonical.Unreadable:
            told, spelled = None, b""
        if not isinstance(told, dict) or spelled + b"\n" != line:
            raise Refuted("manifest_untrue", "a line that is no item: no object, or not in the one spelling", section=section.name)


def _require_events(file: BinaryIO, manifest: Manifest) -> None:
    """The export of the session, which ends as the manifest says and lacks what it says."""
    events, at, workspace_id, last_hash = manifest.sections[0], 0, None, None
    gaps: dict[str, dict[str, Any]] = {}
    file.seek(0)
    try:
        for entry in export.read(_lines(file, events.bytes, LINE_BYTES_MAX)):
            if entry.session_id != manifest.session_id:
                raise Refuted("events_untrue", "of another session", section=events.name, cause="wrong_session")
            at, last_hash = entry.sequence, entry.fields.get("hash")
            workspace_id = workspace_id or entry.fields.get("workspace_id")
            if at == 1 and entry.attributes.get("source_session_id") is not None:
                gaps["in_source_session"] = _source_gap(entry.attributes)
            reason = "missing" if entry.type is None else entry.unavailable
            if reason is not None:
                gap = gaps.setdefault(reason, {"reason": reason, "count": 0, "first_sequence": at})
                gap.update(count=gap["count"] + 1, last_sequence=at)
    except export.Refuted as refuted:
        # Said last, once everything else is verified: in a bundle it is a gap, which the manifest has to name.
        if refuted.code != "missing_position":
            raise Refuted("events_untrue", str(refuted), section=events.name, cause=refuted.code) from None
    if (at, last_hash, workspace_id) != (manifest.end_sequence, manifest.last_hash, manifest.workspace_id):
        raise Refuted("manifest_untrue", "its end, last hash or workspace is not that of the events")
    if list(events.gaps) != [gaps[reason] for reason in sorted(gaps)]:
        raise Refuted("manifest_untrue", "its gaps are not those of the events", section=events.name)


def _source_gap(told: Mapping[str, Any]) -> dict[str, Any]:
    """Of a fork, by its first event: the session where its beginning is. A position that no manifest can hold is left out."""
    source = {name: told[name] for name in ("through_sequence", "source_hash") if name in told}
    if source.get("through_sequence", 0) > _EXACT_MAX:
        del source["through_sequence"]
    return {"reason": "in_source_session", "session_id": told["source_session_id"], **source}


def _require_expected(verdict: Verdict, session_id: str | None, last_hash: str | None, end_sequence: int | None) -> None:
    if session_id not in (None, verdict.session_id):
        raise Refuted("other_session", f"it is of {verdict.session_id}")
    if end_sequence is not None and verdict.end_sequence < end_sequence:
        raise Refuted("too_short", f"it ends at position {verdict.end_sequence}")
    if last_hash is not None and last_hash.lower() != verdict.last_hash:
        raise Refuted("other_history", f"it ends with the hash {verdict.last_hash}, not with the expected one")


def _lines(file: BinaryIO, size: int, longest: int) -> Iterator[bytes]:
    """The lines of the next `size` bytes, each with its line end; of a longer one no more than shows that it is longer."""
    while size and (line := file.readline(min(size, longest + 1))):
        size -= len(line)
        yield line


@contextmanager
def _opened(file: Source) -> Iterator[BinaryIO]:
    if isinstance(file, bytes):
        yield BytesIO(file)
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115
    except ValueError as error:
        # A zero byte in it, or half of a character: no file has such a name.
        raise OSError(errno.EINVAL, "no name of a file", repr(str(file))) from error
    with opened:
        yield opened


def _read(source: Source) -> bytes:
    """A trust document, or as much of it as shows that it is longer than any."""
    with _opened(source) as file:
        return file.read(signed.TRUST_BYTES_MAX + 1)
