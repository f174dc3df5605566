"""What is said of a bundle.

code                      what it means
verified                  every byte is as it was signed, and the events are a whole and true export
no_trust                  the trust document is none: nobody's signature counts
malformed_envelope        the last line is no envelope of the DSSE form in its one spelling, with one signature
wrong_type                an envelope of something else than a bundle's manifest
unknown_key               signed by nobody whom the trust document names for bundles
revoked_key               signed by a key that was revoked
wrong_signature           not the bytes that were signed
duplicate_key             a member of the manifest is given twice
malformed_manifest        what is signed is no manifest as it is known here
unknown_format            a manifest of another format or version
not_canonical             the manifest in another form than RFC 8785 gives it
wrong_lengths             the sections are longer or shorter than what stands in front of the manifest
section_mismatch          a section is not the one that was signed
manifest_untrue           signed, and yet it tells of other items, another end or other gaps than there are, or a line is no item
events_untrue             signed, and yet no export that verifies; `cause` is the code of `session_streams.export`
other_session             a bundle of another session than the one that was expected
other_history             it ends with another hash than the one that was expected
too_short                 it ends before the position that was expected
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .manifest import Manifest

VERIFIED: Final = "verified"


class Refuted(Exception):
    """Why a file is no verified bundle. `code` is stable; `detail` is for a person and holds no content; `cause` is that of the events."""

    def __init__(self, code: str, detail: str, *, section: str | None = None, cause: str | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.section, self.cause = code, detail, section, cause


@dataclass(frozen=True)
class Section:
    """One section as the manifest has it. `gaps` say what is not in it, and why."""

    name: str
    source: Mapping[str, Any]
    items: int
    bytes: int
    digest: str
    gaps: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.items}{''.join(f'; {gap_in_words(gap)}' for gap in self.gaps)}"


@dataclass
class Verdict:
    """What is known of a file. Ids, numbers and `sections` are those of the manifest once that is verified, whatever is wrong behind it."""

    code: str = VERIFIED
    detail: str = ""
    section: str | None = None
    cause: str | None = None
    session_id: str | None = None
    workspace_id: str | None = None
    end_sequence: int = 0
    last_hash: str | None = None
    key_id: str | None = None
    sections: tuple[Section, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return self.code == VERIFIED

    def told(self, manifest: "Manifest") -> None:
        self.session_id, self.workspace_id, self.key_id = manifest.session_id, manifest.workspace_id, manifest.key_id
        self.end_sequence, self.last_hash, self.sections = manifest.end_sequence, manifest.last_hash, manifest.sections

    def refute(self, refuted: Refuted) -> None:
        self.code, self.detail, self.section, self.cause = refuted.code, refuted.detail, refuted.section, refuted.cause

    def __str__(self) -> str:
        if not self.ok:
            return f"NOT VERIFIED {self.code}: {f'{self.section}: ' if self.section else ''}{self.detail}"
        gaps = [f"{section.name}: {gap_in_words(gap)}" for section in self.sections for gap in section.gaps]
        return (
            f"verified {self.session_id}: positions 1 to {self.end_sequence}, "
            + ", ".join(f"{section.name} {section.items}" for section in self.sections[1:])
            + f"; last hash {self.last_hash}; signed by {(self.key_id or '')[:16]}"
            + "".join(f"\n  gap in {gap}" for gap in gaps)
        )


def gap_in_words(gap: Mapping[str, Any]) -> str:
    """Of a gap in the form that a manifest has it in: which members it has is not the same for each."""
    counted = f"{gap['count']} " if "count" in gap else ""
    words = f"{counted}{str(gap['reason']).replace('_', ' ')}"
    if "session_id" in gap:
        words += f" {gap['session_id']}"
    first, last = (1 if "through_sequence" in gap else gap.get("first_sequence")), gap.get("through_sequence", gap.get("last_sequence"))
    if first is None or last is None:
        return words
    return f"{words}, {f'position {first}' if first == last else f'positions {first} to {last}'}"
