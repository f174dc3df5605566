"""Attacks on a transfer, each with the verdict that it ends in; nothing of it is ever imported, and nothing raises."""

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from streams.capsules import checks
from streams.capsules.model import ImportCapsule
from streams.capsules.splitting import Malformed, Splitter, TooLarge
from tests.support.capsules import (
    CATALOGUE,
    CONTENT,
    PROJECTOR,
    STRANGER,
    Document,
    TrustedKeys,
    digest,
    known,
    signature,
    signed,
    unsigned,
)

VALID = signed(unsigned())
OTHER = signed(unsigned(session_id="sess_" + "7" * 32, capsule_id="cap_" + "8" * 32))
ANOTHER_TARGET = signed({**unsigned(), "target": {**unsigned()["target"], "agent_id": "x"}})["target"]
SIGNED = VALID["transfer"]["projection_signature"]
RETENTION, PROJECTION = "transfer.capsule.artifact.retention", "transfer.projection_signature"
RAW = base64.b64encode(PROJECTOR.sign_bytes(bytes.fromhex(SIGNED["statement_digest"][7:]))).decode()


def verdict(body: bytes, **facts: Any) -> str:
    """What an import of this body ends in: `imported`, a reason, or what makes it no request."""
    splitter = Splitter(content_max=1000, skeleton_max=20_000)
    try:
        splitter.feed(body)
        skeleton, arrived = splitter.finish()
        request = msgspec.json.decode(skeleton, type=ImportCapsule)
    except TooLarge:
        return "request.too_large"
    except msgspec.ValidationError:
        return "request.invalid"
    except (Malformed, msgspec.DecodeError, UnicodeDecodeError):
        return "request.malformed"
    return checks.refusal(request, known(arrived=arrived, **facts)) or "imported"


def written(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_transfer_itself_is_imported() -> None:
    assert verdict(written(VALID)) == "imported"


def test_no_byte_can_be_flipped() -> None:
    body = written(VALID)
    ends = {verdict(body[:at] + bytes([body[at] ^ (1 << at % 7)]) + body[at + 1 :]) for at in range(len(body))}

    assert "imported" not in ends
    assert {"request.malformed", "request.invalid", "capsule_invalid", "target_unqualified"} <= ends


def test_it_cannot_be_cut_anywhere() -> None:
    body = written(VALID)

    assert {verdict(body[:at]) for at in range(0, len(body), 7)} == {"request.malformed"}


def _resigned_by(key: Any) -> Document:
    return signed(unsigned(), projector=key)


def _with(change: Callable[[Document], None]) -> Document:
    document = copy.deepcopy(VALID)
    change(document)
    return document


def _set(path: str, value: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *way, last = path.split(".")
        for name in way:
            document = document[name]
        document[last] = value

    return change


ATTACKS: dict[str, tuple[Document, str]] = {
    "another session's retention": (
        _with(_set(RETENTION, OTHER["transfer"]["capsule"]["artifact"]["retention"])), "capsule_invalid",
    ),
    "another capsule's signature": (_with(_set(PROJECTION, OTHER["transfer"]["projection_signature"])), "capsule_invalid"),
    "another capsule under this request": ({**VALID, "transfer": OTHER["transfer"]}, "capsule_invalid"),
    "an older export's time": (_with(_set("transfer.exported_at", "2020-01-01T00:00:00Z")), "capsule_invalid"),
    "the same moment written otherwise": (
        _with(_set("transfer.exported_at", VALID["transfer"]["exported_at"].replace("Z", "+00:00"))), "capsule_invalid",
    ),
    "a receipt of another target": (
        _with(_set("target.qualification_receipt", ANOTHER_TARGET["qualification_receipt"])),
        "target_unqualified",
    ),
    "a stranger's key": (_resigned_by(STRANGER), "source_projection_unavailable"),
    "the catalogue's key for the projector's": (_resigned_by(CATALOGUE), "source_projection_unavailable"),
    "the projector's key for the catalogue's": (signed(unsigned(), catalogue=PROJECTOR), "target_unqualified"),
    "the projector's name under a stranger's signature": (
        _with(_set(PROJECTION, {**signature(STRANGER, SIGNED["statement_digest"]), "key_id": SIGNED["key_id"]})),
        "source_projection_unavailable",
    ),
    "a signature of the digest's raw bytes": (
        _with(_set(f"{PROJECTION}.signature", RAW)),
        "source_projection_unavailable",
    ),
    "a downgraded algorithm": (_with(_set(f"{PROJECTION}.algorithm", "none")), "capsule_invalid"),
    "an algorithm in capitals": (_with(_set(f"{PROJECTION}.algorithm", "Ed25519")), "capsule_invalid"),
    "no signature at all": (_with(_set(f"{PROJECTION}.signature", "")), "capsule_invalid"),
    "a signature of spare bits": (
        _with(_set(f"{PROJECTION}.signature", SIGNED["signature"][:-3] + "R==")), "capsule_invalid",
    ),
    "a look-alike of the format": (_with(_set("transfer.format", "checkfu.session-\u0441ontinuation-capsule")), "capsule_invalid"),
    "a look-alike of a capability": (
        _with(_set("target.qualification_receipt.qualified_capabilities", ["\u0441heckpoint_import"])), "target_unqualified",
    ),
    "a digest in capitals": (_with(_set("transfer.capsule.artifact.content_digest", digest("x").upper())), "request.invalid"),
    "a number as a fraction": (_with(_set("transfer.capsule.through_sequence", 7.0)), "request.invalid"),
    "a number beyond what JSON holds": (_with(_set("transfer.capsule.through_sequence", 2**53)), "request.invalid"),
    "a claim of ten gigabytes": (_with(_set("transfer.capsule.artifact.byte_count", 10 * 2**30)), "request.invalid"),
    "a claim of a gigabyte": (_with(_set("transfer.capsule.artifact.byte_count", 2**30)), "capsule_invalid"),
    "a field that nobody signed": (_with(_set("transfer.capsule.note", "?")), "request.invalid"),
    "more content than is said": (_with(_set("transfer.content_base64", base64.b64encode(CONTENT + b"x").decode())), "capsule_invalid"),
    "content without end": (_with(_set("transfer.content_base64", "A" * 4000)), "request.too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_its_verdict(name: str) -> None:
    document, expected = ATTACKS[name]

    assert verdict(written(document)) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (b'"schema_version":1', b'"schema_version":1,"schema_version":1', "request.malformed"),
        (b'"schema_version":1', b'"schema_version":1.0', "request.invalid"),
        (b'"schema_version":1', b'"schema_version":1e0', "request.invalid"),
        (b'"schema_version":1', b'"schema_version":01', "request.malformed"),
        (b'"through_sequence":7', b'"through_sequence":-0', "capsule_invalid"),
        (b'"content_encoding":"base64"', b'"content_encoding":"base64","content\\u005fencoding":"base64"', "request.malformed"),
        (b'"format"', b'"form\\u0430t"', "request.invalid"),
        (b'{"session_thread_id"', b'\xef\xbb\xbf{"session_thread_id"', "request.malformed"),
    ],
)
def test_spellings_that_parsers_differ_about(before: bytes, after: bytes, expected: str) -> None:
    body = written(VALID)
    assert before in body

    assert verdict(body.replace(before, after, 1)) == expected


def test_what_a_revoked_key_signed_counts_no_more() -> None:
    left = TrustedKeys({"retention": [], "qualifications": [CATALOGUE.public]})

    assert verdict(written(VALID), keys=left) == "source_projection_unavailable"
    assert verdict(written(VALID), keys=TrustedKeys({"retention": [PROJECTOR.public], "qualifications": []})) == "target_unqualified"
