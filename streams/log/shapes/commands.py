"""Commands, with the drafts in them."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from schemas.primitives import long_at, long_bytes, long_of, long_text
from streams.log.shapes.drafts import AttributesOf, ReadDraft, read_draft
from streams.log.shapes.patterns import A_LONG, COMMAND, PRINCIPAL, RUN, SESSION, TASK, WORKSPACE, is_usual, optional
from streams.session.commands import Command, Kind, Report
from streams.session.vocabulary import DIGEST_BYTES

_HEAD: Final = re.compile(
    "".join(
        (
            COMMAND,
            SESSION,
            WORKSPACE,
            rf"({'|'.join(re.escape(chr(2 * len(kind))) + kind for kind in Kind)})",
            PRINCIPAL,
            "@(.{32})",
            A_LONG,
            A_LONG,
            optional(A_LONG),
            optional(f"({RUN}{A_LONG}{optional(TASK)}{optional(A_LONG)})"),
            optional(A_LONG),
            r"([\x00\x01])",
        )
    ),
    re.DOTALL,
)
"""Up to the length of `reply_to`."""
_LONGEST_REPLY_TO: Final = 63
_KINDS: Final = {chr(2 * len(kind)) + kind: kind for kind in Kind}


class ReadCommand(NamedTuple):
    """A command, and of each of its drafts the offset and what was read."""

    command: Command
    drafts: list[tuple[int, ReadDraft]]


def read_command(value: bytes, start: int, attributes_of: AttributesOf) -> ReadCommand | None:
    """The command whose body is `value` from `start` to its end, if it has this shape."""
    characters = value.decode("latin-1")
    match = _HEAD.match(characters, start)
    if match is None:
        return None
    (
        command_id, session_id, workspace_id, kind, principal_id, digest, issued_at, not_after, expected, report, run_id, generation,
        task_id, run_sequence, lease_ms, importing,
    ) = match.groups()  # fmt: skip
    at = match.end()
    try:
        size = value[at]
        at += 1 + size // 2
        reply_to = characters[at - size // 2 : at]
        if size & 0x81 or not reply_to.isascii():  # longer than 63 bytes, or not ASCII
            return None
        correlation, at = long_at(value, at)
        drafts = _drafts(value, characters, at, attributes_of)
    except IndexError:
        return None
    if drafts is None:
        return None
    reported = None
    if report is not None:
        reported = Report(run_id, long_of(generation), task_id, None if run_sequence is None else long_of(run_sequence))
    command = Command(
        command_id=command_id, session_id=session_id, workspace_id=workspace_id, kind=_KINDS[kind], principal_id=principal_id,
        request_digest=digest.encode("latin-1"), issued_at=long_of(issued_at), not_after=long_of(not_after),
        expected_sequence=None if expected is None else long_of(expected), report=reported,
        lease_ms=None if lease_ms is None else long_of(lease_ms), importing=importing == "\x01", reply_to=reply_to,
        correlation=correlation, drafts=tuple([read.draft for _, read in drafts]),
    )  # fmt: skip
    return ReadCommand(command, drafts)


def _drafts(value: bytes, characters: str, at: int, attributes_of: AttributesOf) -> list[tuple[int, ReadDraft]] | None:
    """Those of the array at `at`, which must end the value. Raises `IndexError` where it ends sooner."""
    drafts = []
    count, at = long_at(value, at)
    while count > 0:
        for _ in range(count):
            size, at = long_at(value, at)
            read = read_draft(value, characters, at, attributes_of)
            if read is None or read.end != at + size:
                return None
            drafts.append((at, read))
            at = read.end
        count, at = long_at(value, at)
    # A negative count is a block that also tells its size.
    return drafts if count == 0 and at == len(value) else None


def write_command(command: Command, drafts: Sequence[bytes]) -> bytes | None:
    """The body of a command with these bodies of drafts, if it is well-formed and nothing of it is unusual, as a report is."""
    report, expected, lease_ms, reply_to = command.report, command.expected_sequence, command.lease_ms, command.reply_to
    if report is not None or len(command.request_digest) != DIGEST_BYTES or len(reply_to) > _LONGEST_REPLY_TO or not reply_to.isascii():
        return None
    if not all(map(is_usual, (expected, lease_ms, command.issued_at, command.not_after, command.correlation))):
        return None
    expected_text = None if expected is None else long_text(expected)
    lease_text = None if lease_ms is None else long_text(lease_ms)
    issued_at, not_after = long_text(command.issued_at), long_text(command.not_after)
    importing = "\x01" if command.importing else "\x00"
    digest = command.request_digest.decode("latin-1")
    kind = chr(2 * len(command.kind)) + command.kind
    head = (
        f"H{command.command_id}J{command.session_id}F{command.workspace_id}{kind}H{command.principal_id}@{digest}{issued_at}{not_after}"
        f"{chr(0) if expected_text is None else chr(2) + expected_text}\x00"
        f"{chr(0) if lease_text is None else chr(2) + lease_text}{importing}"
    )
    match = _HEAD.fullmatch(head)
    # Text may hold anything, a field's ends among it: each must be found where it was put.
    if match is None or match.groups() != (
        command.command_id, command.session_id, command.workspace_id, kind, command.principal_id, digest, issued_at, not_after,
        expected_text, None, None, None, None, None, lease_text, importing,
    ):  # fmt: skip
        return None
    asked = f"{head}{chr(2 * len(reply_to))}{reply_to}{long_text(command.correlation)}"
    parts = [asked.encode("latin-1")]
    if drafts:
        parts.append(long_bytes(len(drafts)))
        for body in drafts:
            parts += (long_bytes(len(body)), body)
    parts.append(b"\x00")
    return b"".join(parts)
