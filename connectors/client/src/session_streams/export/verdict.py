"""What is said of an export.

code                      what it means
verified                  every line is what was accepted, in its place, from the header to the trailer
malformed_line            no JSON in UTF-8, or members that a line of its kind does not have
duplicate_key             a member is given twice
not_canonical             the same in another form: spaces, escapes, order of members, spelling of a number
header_missing            the first line is no header
unknown_format            another format, version or chain than is known here
unknown_schema            a schema of attributes that is not as published, or newer than this check
not_whole                 a part that begins behind position 1, where a whole export is asked for; a fork without its ancestors,
                          where its lineage is
wrong_genesis             the chain does not begin as the session's chain does
wrong_session             a position of another session
gap, duplicate,           positions are missing; are there twice; stand in each other's places;
  out_of_order, beyond_end  or lie behind the end that the header names
previous_hash_mismatch    a position does not follow the one before it
hash_mismatch             a structural field is not what was accepted
attributes_mismatch       attributes are shown otherwise than their bytes hold them
content_mismatch          content is not what was accepted
missing_position          the export itself says that nothing of a position can be shown
trailer_mismatch          count or last hash of the trailer
incomplete                no trailer: the export broke off, or was cut
after_end                 something stands behind the trailer that is no export
wrong_source              a session is not forked from the end of the one before it in the file
other_history             it ends with another hash than the one that was expected
"""

from dataclasses import dataclass, field
from typing import Final

VERIFIED: Final = "verified"


class Refuted(Exception):
    """Why a file is not a verified export. `code` is stable, `detail` is for a person and holds no content."""

    def __init__(self, code: str, detail: str, *, line: int, sequence: int | None = None) -> None:
        super().__init__(f"{code}: {_place(line, sequence)}: {detail}")
        self.code, self.detail, self.line, self.sequence = code, detail, line, sequence


@dataclass
class Verdict:
    """What is known of a file. Counts are of what was verified: all of it, or what stands before `line`.

    Positions are those of the last session in it; `ancestors` has (session id, last position, its hash) of those before it.

    `good_bytes` is the length of that beginning: an `incomplete` export is continued there, at `next_sequence`.
    """

    code: str = VERIFIED
    detail: str = ""
    line: int = 0
    sequence: int | None = None
    session_id: str | None = None
    from_sequence: int = 1
    end_sequence: int = 0
    next_sequence: int = 1
    last_hash: str | None = None
    opened: int = 0
    unavailable: dict[str, int] = field(default_factory=dict)
    good_bytes: int = 0
    ancestors: list[tuple[str, int, str | None]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.code == VERIFIED

    @property
    def positions(self) -> int:
        return self.next_sequence - self.from_sequence

    def refute(self, refuted: Refuted) -> None:
        self.code, self.detail, self.line, self.sequence = refuted.code, refuted.detail, refuted.line, refuted.sequence

    def __str__(self) -> str:
        if not self.ok:
            return f"NOT VERIFIED {self.code}: {_place(self.line, self.sequence)}: {self.detail}"
        gone = ", ".join(f"{count} {reason}" for reason, count in sorted(self.unavailable.items()))
        behind = "".join(f", behind {session_id} to {end}" for session_id, end, _ in reversed(self.ancestors))
        return (
            f"verified {self.session_id}: positions {self.from_sequence} to {self.end_sequence}{behind}, {self.opened} with content"
            f"{f', content unavailable: {gone}' if gone else ''}; last hash {self.last_hash}"
        )


def _place(line: int, sequence: int | None) -> str:
    return f"line {line}" if sequence is None else f"line {line}, position {sequence}"
