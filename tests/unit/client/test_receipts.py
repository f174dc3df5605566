"""Receipts are checked offline, and a check can fail in each way that it names."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_streams import receipts
from session_streams.receipts import Verdict, main, verify
from streams.custody.signers import Signers
from streams.custody.signing import SigningKey
from streams.log.retention import COMPLETE, ENFORCED, Purged, WorkspaceCommand
from streams.retention import core
from streams.retention.receipts import PAYLOAD_TYPE, receipt
from tests.support.commands import new_id

SECOND = 1_000_000
BEGUN = 1_900_000_000 * SECOND


def erased(key: SigningKey, subject: str = "subj_" + "1" * 32) -> list[bytes]:
    """Receipts of an erasure from its acceptance to its end, as the driver signs them."""
    command = WorkspaceCommand(
        command_id=new_id("cmd"), workspace_id="ws_" + "a" * 32, action="erase_subject", target_id=subject,
        principal_id="key_" + "b" * 32, issued_at=BEGUN, not_after=BEGUN + SECOND,
    )  # fmt: skip
    row = core.accepted(command, "subject", BEGUN, "workspaces.commands:0:1")
    told = [receipt(row, "accepted", key, BEGUN)]
    row = core.enforced(core.destroyed(row, 1, BEGUN + SECOND), BEGUN + 2 * SECOND)
    told.append(receipt(row, ENFORCED, key, BEGUN + 2 * SECOND, holders=["gateway.0/1", "authority.0/2"], lapsed=["gateway.1/3"]))
    purged = {"custodian/0": Purged(order=1, counts={"sessions": 2, "uploads": 1}), "agents/0": Purged(order=1, counts={"sessions": 1})}
    row = core.complete(row, core.Confirmed(reports={1: purged}), BEGUN + 90 * SECOND)
    return [*told, receipt(row, COMPLETE, key, BEGUN + 90 * SECOND, holders=["custodian/0", "agents/0"])]


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    return Signers(tmp_path / "signers")


@pytest.fixture
def told(signers: Signers) -> list[bytes]:
    return erased(signers.current("receipts"))


@pytest.fixture
def check(signers: Signers) -> Callable[..., Verdict]:
    def checked(*envelopes: bytes) -> Verdict:
        return verify(b"\n".join(envelopes), msgspec.json.encode(signers.trust()))

    return checked


def changed(envelope: bytes, key: SigningKey, **members: Any) -> bytes:
    """Signed anew, with other members; None takes one away."""
    payload = {**json.loads(base64.b64decode(json.loads(envelope)["payload"])), **members}
    payload = {name: value for name, value in payload.items() if value is not None}
    return msgspec.json.encode(key.sign(PAYLOAD_TYPE, msgspec.json.encode(payload, order="sorted")))


def test_receipts_of_all_steps_verify_and_say_what_was_done(told: list[bytes], check: Callable[..., Verdict]) -> None:
    verdict = check(*told)
    assert verdict.ok, str(verdict)
    assert [each.step for each in verdict.receipts] == ["accepted", "enforced", "complete"]
    last = verdict.receipts[-1]
    assert (last.scope, last.counts, last.holders) == ("subject", {"sessions": 3, "uploads": 1}, ("agents/0", "custodian/0"))
    assert verdict.receipts[1].lapsed == ("gateway.1/3",)
    assert str(verdict).startswith("verified ers_")
    assert "subject subj_" + "1" * 32 in str(verdict)
    assert "removed: sessions 3, uploads 1" in str(verdict)


def test_one_receipt_alone_is_evidence_and_so_are_several_erasures_in_one_file(
    told: list[bytes], signers: Signers, check: Callable[..., Verdict]
) -> None:
    assert check(told[2]).ok
    other = erased(signers.current("receipts"), "subj_" + "2" * 32)
    assert len(str(check(*told, *other)).splitlines()) == 2


def test_the_answer_of_the_service_will_do(told: list[bytes], signers: Signers) -> None:
    trust = msgspec.json.encode(signers.trust())
    answer = json.dumps({"erasure_id": "ers_1", "receipts": [json.loads(each) for each in told]}).encode()
    assert verify(answer, trust).ok
    assert verify(told[0], trust).ok


def test_keys_that_were_followed_by_others_count_and_revoked_ones_do_not(signers: Signers, check: Callable[..., Verdict]) -> None:
    old = signers.current("receipts")
    told = erased(old)
    signers.rotate("receipts")
    assert check(*told, *erased(signers.current("receipts"), "subj_" + "2" * 32)).ok
    signers.revoke(old.public.key_id)
    assert check(*told).code == "revoked_key"


def test_a_key_of_another_purpose_counts_for_nothing(signers: Signers, check: Callable[..., Verdict]) -> None:
    signers.current("receipts")
    assert check(*erased(signers.current("bundles"))).code == "unknown_key"
    assert check(*erased(SigningKey.generate())).code == "unknown_key"


def _flip(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda envelope: b"garbage", "malformed_envelope"),
        (lambda envelope: b"[1]", "malformed_envelope"),
        (lambda envelope: json.dumps({**envelope, "payload": "%"}).encode(), "malformed_envelope"),
        (lambda envelope: json.dumps({**envelope, "signatures": 1}).encode(), "malformed_envelope"),
        (lambda envelope: json.dumps({**envelope, "payloadType": "text/plain"}).encode(), "wrong_type"),
        (lambda envelope: json.dumps({**envelope, "signatures": []}).encode(), "unknown_key"),
        (lambda envelope: json.dumps({**envelope, "payload": _flip(envelope["payload"])}).encode(), "wrong_signature"),
        (
            lambda envelope: json.dumps(
                {**envelope, "signatures": [{**envelope["signatures"][0], "sig": _flip(envelope["signatures"][0]["sig"])}]}
            ).encode(),
            "wrong_signature",
        ),
    ],
)
def test_an_envelope_that_was_touched_is_refuted_by_name(
    told: list[bytes], check: Callable[..., Verdict], change: Callable[[Any], bytes], code: str
) -> None:
    verdict = check(told[0], change(json.loads(told[1])))
    assert (verdict.code, verdict.number, len(verdict.receipts)) == (code, 2, 1)
    assert str(verdict).startswith(f"NOT VERIFIED {code}: receipt 2: ")


@pytest.mark.parametrize(
    "members",
    [
        {"format": "other"}, {"schema_version": 2}, {"step": "destroyed"}, {"scope": "subj"}, {"scope": {"kind": "subject"}},
        {"counts": {"sessions": "3"}}, {"counts": {"sessions": True}}, {"holders": None}, {"lapsed": [1]}, {"issued_at": "yesterday"},
        {"accepted_at": None}, {"complete_at": None}, {"enforced_at": "2026-01-01T00:00:00+01:00"}, {"more": 1}, {"erasure_id": 1},
    ],
)  # fmt: skip
def test_what_is_signed_and_no_receipt_is_refuted(
    told: list[bytes], signers: Signers, check: Callable[..., Verdict], members: dict[str, Any]
) -> None:
    assert check(changed(told[2], signers.current("receipts"), **members)).code == "malformed_receipt"


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_signed_and_no_json_object_is_refuted(signers: Signers, check: Callable[..., Verdict], payload: bytes) -> None:
    envelope = msgspec.json.encode(signers.current("receipts").sign(PAYLOAD_TYPE, payload))
    assert check(envelope).code == "malformed_receipt"


def test_another_spelling_of_a_receipt_is_not_canonical(told: list[bytes], signers: Signers, check: Callable[..., Verdict]) -> None:
    payload = json.loads(base64.b64decode(json.loads(told[0])["payload"]))
    for text in (json.dumps(payload), json.dumps(payload, sort_keys=True, separators=(",", ":"))[:-1] + ',"step":"accepted"}'):
        envelope = msgspec.json.encode(signers.current("receipts").sign(PAYLOAD_TYPE, text.encode()))
        assert check(envelope).code == "not_canonical"


@pytest.mark.parametrize(
    "members",
    [
        {"workspace_id": "ws_" + "c" * 32}, {"scope": {"kind": "subject", "id": "subj_" + "9" * 32}}, {"requested_by": "key_" + "c" * 32},
        {"accepted_at": "2030-01-01T00:00:00Z"}, {"destroyed_at": "2031-01-01T00:00:00Z"}, {"complete_at": "2030-01-01T00:00:00Z"},
        {"issued_at": "2030-01-01T00:00:00Z"},
    ],
)  # fmt: skip
def test_receipts_that_contradict_one_another_are_refuted(
    told: list[bytes], signers: Signers, check: Callable[..., Verdict], members: dict[str, Any]
) -> None:
    assert check(*told[:2], changed(told[2], signers.current("receipts"), **members)).code == "contradiction"


def test_counts_that_shrink_are_a_contradiction(told: list[bytes], signers: Signers, check: Callable[..., Verdict]) -> None:
    key = signers.current("receipts")
    assert check(changed(told[1], key, counts={"sessions": 9}), told[2]).code == "contradiction"


@pytest.mark.parametrize("text", [b"", b"\n\n", b"[]", b'{"receipts":[]}'])
def test_a_file_without_receipts_is_no_evidence(signers: Signers, text: bytes) -> None:
    signers.current("receipts")
    assert verify(text, msgspec.json.encode(signers.trust())).code == "no_receipts"


@pytest.mark.parametrize("trust", [b"", b"{}", b"[]", b'{"format":"session-streams.trust","schema_version":2,"keys":[]}'])
def test_without_a_trust_document_nobody_is_believed(told: list[bytes], trust: bytes) -> None:
    assert verify(told[0], trust).code == "no_trust"


def test_a_trust_document_that_gives_a_key_anothers_id_is_none(told: list[bytes], signers: Signers) -> None:
    trust = msgspec.to_builtins(signers.trust())
    mine = SigningKey.generate()
    trust["keys"][0]["keyval"]["public"] = mine.public.keyval.public
    assert trust["keys"][0]["key_id"] != hashlib.sha256(bytes.fromhex(mine.public.keyval.public)).hexdigest()
    assert verify(told[0], json.dumps(trust).encode()).code == "no_trust"


@given(st.binary(max_size=200))
def test_no_bytes_make_the_check_fall_over(text: bytes) -> None:
    trust = b'{"format":"session-streams.trust","schema_version":1,"keys":[]}'
    assert not verify(text, trust).ok


def test_it_runs_by_itself_and_its_status_says_what_came_of_it(
    told: list[bytes], signers: Signers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, trust = tmp_path / "receipts", tmp_path / "signers" / "trust.json"
    file.write_bytes(b"\n".join(told) + b"\n")
    assert main([str(file), "--trust", str(trust)]) == 0
    assert capsys.readouterr().out.startswith("verified ers_")
    file.write_bytes(b"garbage")
    assert main([str(file), "--trust", str(trust)]) == 1
    assert main([str(tmp_path / "absent"), "--trust", str(trust)]) == 2


def test_its_words_are_those_of_who_signs() -> None:
    assert (receipts.PAYLOAD_TYPE, receipts.STEPS) == (PAYLOAD_TYPE, ("accepted", ENFORCED, COMPLETE))
