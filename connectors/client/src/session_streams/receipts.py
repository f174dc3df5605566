"""Receipts of erasures: what an installation has signed of them, checked by nothing but their file and the installation's public keys.

code                  what it means
verified              every receipt is signed by a key that counts, and none contradicts another
no_receipts           there is none in the file
too_large             more than 64 MiB, of which nothing is looked at
no_trust              the trust document is none: nobody's signature counts
malformed_envelope    no JSON, or no envelope of the DSSE form
wrong_type            an envelope of something else than a receipt
unknown_key           signed by nobody whom the trust document names for receipts
revoked_key           signed by a key that was revoked: nothing that it ever signed counts
wrong_signature       not the bytes that were signed
malformed_receipt     what is signed is no receipt as it is known here
not_canonical         what is signed is a receipt in another form than RFC 8785 gives it
contradiction         receipts of one erasure say different things of it, or go back in time

A file has one envelope a line, as `session-streams erase --receipt` writes it; the answer of GET /v1/erasures/{id} will do, too.
A receipt says what the installation that signed it did and was told, not that nobody had copied anything before.
"""

import argparse
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from session_streams import signed
from session_streams.receipts_form import STEPS, TIMES, misfit, moment

PAYLOAD_TYPE: Final = "application/vnd.session-streams.receipt+json"
PURPOSE: Final = "receipts"
VERIFIED: Final = "verified"

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_JSON_BYTES_MAX: Final = 1024 * 1024
"""Of an envelope, and of an answer of the service: what is made of JSON may take fifty times its room."""


class Refuted(Exception):
    """Why a file is no evidence. `code` is stable, `detail` is for a person."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


@dataclass(frozen=True)
class Receipt:
    """One step of one erasure. Times as RFC 3339; `holders` confirmed it, `lapsed` were not waited for any longer. `key_id` signed it."""

    erasure_id: str
    workspace_id: str
    scope: str
    scope_id: str
    step: str
    requested_by: str
    accepted_at: str
    destroyed_at: str | None
    enforced_at: str | None
    complete_at: str | None
    counts: Mapping[str, int]
    holders: tuple[str, ...]
    lapsed: tuple[str, ...]
    issued_at: str
    key_id: str
    raw: Mapping[str, Any] = field(repr=False)


@dataclass
class Verdict:
    """What is known of a file: its receipts, or those before the one that refutes it (`number`, from 1)."""

    code: str = VERIFIED
    detail: str = ""
    number: int = 0
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.code == VERIFIED

    def __str__(self) -> str:
        if not self.ok:
            return f"NOT VERIFIED {self.code}: {f'receipt {self.number}: ' if self.number else ''}{self.detail}"
        return "\n".join(_told(erasure_id, list(receipts)) for erasure_id, receipts in _by_erasure(self.receipts).items())


def verify(file: str | Path | bytes, trust: str | Path | bytes) -> Verdict:
    """The verdict on a file of receipts, or on its bytes. `trust` is the installation's trust document (`trust.json`), which has to have
    come from somebody who is believed. Raises OSError where one cannot be read."""
    verdict = Verdict()
    try:
        keys = signed.trusted(_read(trust), PURPOSE)
    except signed.NotVerified as error:
        verdict.code, verdict.detail = "no_trust", str(error)
        return verdict
    try:
        for number, envelope in enumerate(_envelopes(_read(file)), 1):
            verdict.number = number
            verdict.receipts.append(_receipt(envelope, keys))
        verdict.number = 0
        if not verdict.receipts:
            raise Refuted("no_receipts", "the file has none")
        for receipts in _by_erasure(verdict.receipts).values():
            _require_one_story(receipts)
    except Refuted as refuted:
        verdict.code, verdict.detail = refuted.code, refuted.detail
    return verdict


def _read(source: str | Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read(_FILE_BYTES_MAX + 1)


def _envelopes(text: bytes) -> Iterator[bytes]:
    """Each as JSON: lines, or the `receipts` of what a service answered. Raises `Refuted`."""
    if len(text) > _FILE_BYTES_MAX:
        raise Refuted("too_large", f"more than {_FILE_BYTES_MAX} bytes")
    answered = _answered(text) if len(text) <= _JSON_BYTES_MAX else None
    yield from (line for line in io.BytesIO(text) if line.strip()) if answered is None else answered


def _answered(text: bytes) -> list[bytes] | None:
    """None where it is not one JSON text."""
    try:
        whole = json.loads(text.decode(), object_pairs_hook=signed.once)
        listed = whole.get("receipts", [whole]) if isinstance(whole, dict) else whole
        return [json.dumps(each).encode() for each in (listed if isinstance(listed, list) else [listed])]
    except (ValueError, RecursionError):
        return None


def _receipt(envelope: bytes, keys: signed.Keys) -> Receipt:
    """Raises `Refuted`."""
    payload, key_id = _opened(envelope, keys)
    try:
        raw = json.loads(payload.decode())
    except (ValueError, RecursionError):
        raise Refuted("malformed_receipt", "no JSON in UTF-8") from None
    wrong = misfit(raw)
    if wrong is not None:
        raise Refuted("malformed_receipt", wrong)
    if json.dumps(raw, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(errors="surrogatepass") != payload:
        raise Refuted("not_canonical", "spaces, escapes, order of members, or a member that is given twice")
    return Receipt(
        raw["erasure_id"], raw["workspace_id"], raw["scope"]["kind"], raw["scope"]["id"], raw["step"], raw["requested_by"],
        raw["accepted_at"], raw.get("destroyed_at"), raw.get("enforced_at"), raw.get("complete_at"), raw["counts"], tuple(raw["holders"]),
        tuple(raw["lapsed"]), raw["issued_at"], key_id, raw,
    )  # fmt: skip


def _require_one_story(receipts: list[Receipt]) -> None:
    """Raises `Refuted` where receipts of one erasure do not go together."""
    ordered = sorted(receipts, key=lambda receipt: STEPS.index(receipt.step))
    known: dict[str, Any] = {}
    counts: Mapping[str, int] = {}
    issued_at, steps = None, dict[str, Mapping[str, Any]]()
    for receipt in ordered:
        if steps.setdefault(receipt.step, receipt.raw) != receipt.raw:
            raise Refuted("contradiction", f"{receipt.erasure_id}: another receipt of {receipt.step}")
        told = {name: receipt.raw[name] for name in ("workspace_id", "scope", "requested_by", *TIMES) if name in receipt.raw}
        other = next((name for name, value in told.items() if known.setdefault(name, value) != value), None)
        if other is not None:
            raise Refuted("contradiction", f"{receipt.erasure_id}: another {other} than in an earlier step")
        if any(receipt.counts.get(name, 0) < count for name, count in counts.items()):
            raise Refuted("contradiction", f"{receipt.erasure_id}: {receipt.step} counts less than an earlier step")
        if issued_at is not None and _at(receipt.issued_at) < issued_at:
            raise Refuted("contradiction", f"{receipt.erasure_id}: {receipt.step} was issued before an earlier step")
        counts, issued_at = receipt.counts, _at(receipt.issued_at)
    times = [_at(known[name]) for name in TIMES if name in known]
    if times != sorted(times):
        raise Refuted("contradiction", f"{ordered[0].erasure_id}: its times go back")


def _at(text: str) -> datetime:
    """Of a receipt that fits."""
    found = moment(text)
    assert found is not None
    return found


def _by_erasure(receipts: Iterable[Receipt]) -> dict[str, list[Receipt]]:
    found: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.erasure_id, []).append(receipt)
    return found


def _told(erasure_id: str, receipts: list[Receipt]) -> str:
    last = max(receipts, key=lambda receipt: STEPS.index(receipt.step))
    steps = ", ".join(step for step in STEPS if any(receipt.step == step for receipt in receipts))
    at = last.complete_at or last.enforced_at or last.accepted_at
    signers = ", ".join(sorted({receipt.key_id[:16] for receipt in receipts}))
    removed = ", ".join(f"{name} {count}" for name, count in sorted(last.counts.items()) if count)
    confirmed = f", {len(last.holders)} holders confirmed" if last.holders else ""
    return (
        f"verified {erasure_id}: {last.scope} {last.scope_id} is {last.step} since {at}{confirmed}"
        f"{f'; removed: {removed}' if removed else ''}; receipts: {steps}; signed by {signers}"
    )


def _opened(envelope: bytes, keys: signed.Keys) -> tuple[bytes, str]:
    """The payload, and who signed it. Raises `Refuted`."""
    try:
        if len(envelope) > _JSON_BYTES_MAX:
            raise signed.NotVerified("envelope.malformed")
        found = signed.opened(envelope, PAYLOAD_TYPE, keys)
    except signed.NotVerified as error:
        raise Refuted(*signed.refutation(error, PAYLOAD_TYPE, PURPOSE)) from None
    return found.payload, found.key_id


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 verified, 1 not verified, 2 a file cannot be read."""
    parser = argparse.ArgumentParser(prog="session_streams.receipts", description="Verifies receipts of erasures, offline.")
    parser.add_argument("file", help="the receipts, one envelope a line")
    parser.add_argument("--trust", required=True, metavar="FILE", help="the installation's trust.json, from somebody you believe")
    given = parser.parse_args(arguments)
    try:
        verdict = verify(given.file, given.trust)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(verdict)
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    sys.exit(main())
