"""Whatever is done to receipts ends in a verdict that has a name; what verifies all the same says what was signed, and nothing else.

Most attacks are a stranger's, who has no key. Some need one that counts: what is signed is not believed for being signed.
"""

import base64
import json
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from session_streams.receipts import PAYLOAD_TYPE, Verdict, verify
from streams.custody.signers import Signers
from streams.custody.signing import SigningKey
from tests.unit.client.test_receipts import erased

MIB = 1024 * 1024
Told = list[dict[str, Any]]


class Signed:
    """Receipts of two erasures, and who signs. `check` judges a file of such lines."""

    def __init__(self, folder: Path) -> None:
        self.signers = Signers(folder)
        self.key = self.signers.current("receipts")
        self.one, self.other = erased(self.key), erased(self.key, "subj_" + "2" * 32)
        self.trust = msgspec.json.encode(self.signers.trust())

    def check(self, *lines: bytes) -> Verdict:
        return verify(b"\n".join(lines), self.trust)

    def parsed(self) -> Told:
        return [json.loads(each) for each in self.one]

    def sign(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
        return msgspec.json.encode(self.key.sign(payload_type, payload))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("signers"))


def payload_of(envelope: bytes) -> bytes:
    return base64.b64decode(json.loads(envelope)["payload"])


def signature_of(envelope: bytes) -> bytes:
    return base64.b64decode(json.loads(envelope)["signatures"][0]["sig"])


def spelled(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sign_raw(made: Signed, envelope: dict[str, Any]) -> str:
    """The payload itself is signed, not what DSSE says is to be."""
    return encoded(made.key.sign_bytes(base64.b64decode(envelope["payload"])))


def with_signature(envelope: dict[str, Any], **members: Any) -> bytes:
    return spelled({**envelope, "signatures": [{**envelope["signatures"][0], **members}]})


class TestWhatIsMoved:
    def test_in_whatever_order_they_stand_they_say_the_same(self, made: Signed) -> None:
        told = str(made.check(*made.one))
        assert {str(made.check(*order)) for order in permutations(made.one)} == {told}
        assert {str(made.check(*order)) for order in permutations((*made.one, made.other[0], made.one[1]))} == {
            f"{told}\n{made.check(made.other[0])}", f"{made.check(made.other[0])}\n{told}",
        }  # fmt: skip

    def test_a_file_that_is_cut_says_less_and_nothing_else(self, made: Signed) -> None:
        whole = b"\n".join(made.one)
        ends = {len(b"\n".join(made.one[:count])) + extra for count in (1, 2, 3) for extra in (0, 1)}
        for size in [*range(0, len(whole), 11), *ends]:
            verdict = verify(whole[:size], made.trust)
            assert verdict.code == ("verified" if size in ends else "no_receipts" if size == 0 else "malformed_envelope"), size
            assert verdict.receipts == made.check(*made.one).receipts[: len(verdict.receipts)]

    def test_an_earlier_receipt_alone_says_how_far_it_was_then(self, made: Signed) -> None:
        assert " is accepted since " in str(made.check(made.one[0]))
        assert " is complete since " in str(made.check(*made.one))

    @pytest.mark.parametrize("step", [0, 1, 2])
    def test_two_receipts_of_one_step_contradict_each_other_in_either_order(self, made: Signed, step: int) -> None:
        told = json.loads(payload_of(made.one[step]))
        again = made.sign(spelled_in_order({**told, "holders": [*told["holders"], "gateway.9/9"]}))
        for lines in ((made.one[step], again), (again, made.one[step])):
            assert made.check(*lines).code == "contradiction"
        assert made.check(made.one[step], made.one[step]).ok

    def test_an_earlier_erasure_of_the_same_subject_is_none_of_this_one(self, made: Signed) -> None:
        told = json.loads(payload_of(made.one[0]))
        older = made.sign(spelled_in_order({**told, "accepted_at": "2020-01-01T00:00:00Z", "issued_at": "2020-01-01T00:00:00Z"}))
        assert made.check(older).ok
        assert made.check(older, *made.one[1:]).code == "contradiction"


def spelled_in_order(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


STRANGER = SigningKey.generate()


def by_stranger(envelope: bytes) -> bytes:
    return msgspec.json.encode(STRANGER.sign(PAYLOAD_TYPE, payload_of(envelope)))


WITHOUT_A_KEY: dict[str, tuple[str, Callable[[Signed, Told], bytes]]] = {
    "the signature of another step": ("wrong_signature", lambda m, e: spelled({**e[0], "signatures": e[2]["signatures"]})),
    "the receipt of another step": ("wrong_signature", lambda m, e: spelled({**e[0], "payload": e[2]["payload"]})),
    "the receipt of another erasure": (
        "wrong_signature", lambda m, e: spelled({**e[2], "payload": json.loads(m.other[2])["payload"]}),
    ),
    "another holder": (
        "wrong_signature", lambda m, e: spelled({**e[1], "payload": encoded(payload_of(m.one[1]).replace(b"gateway.0", b"gateway.7"))}),
    ),
    "another step": (
        "wrong_signature", lambda m, e: spelled({**e[1], "payload": encoded(payload_of(m.one[1]).replace(b'"enforced"', b'"complete"'))}),
    ),
    "a stranger's signature": ("unknown_key", lambda m, e: by_stranger(m.one[1])),
    "a stranger's signature under a name that counts": (
        "wrong_signature",
        lambda m, e: with_signature(e[1], sig=encoded(signature_of(by_stranger(m.one[1])))),
    ),
    "a name in capitals": ("unknown_key", lambda m, e: with_signature(e[1], keyid=e[1]["signatures"][0]["keyid"].upper())),
    "a look-alike of a name": ("unknown_key", lambda m, e: with_signature(e[1], keyid="\uff11" + e[1]["signatures"][0]["keyid"][1:])),
    "a name that is a path": ("unknown_key", lambda m, e: with_signature(e[1], keyid="../../" + e[1]["signatures"][0]["keyid"])),
    "a signature of the payload itself": ("wrong_signature", lambda m, e: with_signature(e[1], sig=sign_raw(m, e[1]))),
    "a signature of nothing": ("wrong_signature", lambda m, e: with_signature(e[1], sig="")),
    "half a signature": ("wrong_signature", lambda m, e: with_signature(e[1], sig=encoded(signature_of(m.one[1])[:32]))),
    "a signature of zeros": ("wrong_signature", lambda m, e: with_signature(e[1], sig=encoded(bytes(64)))),
    "a signature that goes on": (
        "wrong_signature", lambda m, e: with_signature(e[1], sig=encoded(signature_of(m.one[1]) + b"\0")),
    ),
    "the algorithm none": ("unknown_key", lambda m, e: spelled({**e[1], "signatures": [{"keyid": "none", "sig": "", "alg": "none"}]})),
    "another type": ("wrong_type", lambda m, e: spelled({**e[1], "payloadType": "application/vnd.session-streams.bundle+json"})),
    "a look-alike of the type": ("wrong_type", lambda m, e: spelled({**e[1], "payloadType": PAYLOAD_TYPE.replace("e", "\u0435", 1)})),
    "a type in capitals": ("wrong_type", lambda m, e: spelled({**e[1], "payloadType": PAYLOAD_TYPE.upper()})),
    "a type with a parameter": ("wrong_type", lambda m, e: spelled({**e[1], "payloadType": PAYLOAD_TYPE + ";v=0"})),
    "the payload in clear": ("malformed_envelope", lambda m, e: spelled({**e[1], "payload": payload_of(m.one[1]).decode()})),
    "a payload twice": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"payload":"e30="}'),
    "a payload twice, once with an escape": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"p\\u0061yload":"e30="}'),
    "a name twice in a signature": (
        "malformed_envelope", lambda m, e: m.one[1].replace(b'"keyid":', b'"keyid":"' + b"0" * 64 + b'","keyid":', 1),
    ),
    "no signatures": ("malformed_envelope", lambda m, e: spelled({name: value for name, value in e[1].items() if name != "signatures"})),
    "a number for a signature": ("malformed_envelope", lambda m, e: with_signature(e[1], sig=1.0)),
    "a number of five thousand digits": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":' + b"9" * 5000 + b"}"),
    "a mark in front": ("malformed_envelope", lambda m, e: b"\xef\xbb\xbf" + m.one[1]),
    "another encoding": ("malformed_envelope", lambda m, e: m.one[1].decode().encode("utf-16-le")),
    "another encoding, marked": ("malformed_envelope", lambda m, e: m.one[1].decode().encode("utf-16")),
    "bytes that are overlong": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":"\xc0\xaf"}'),
    "half a surrogate, as bytes": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":"\xed\xa0\x80"}'),
    "half a surrogate in a name": ("unknown_key", lambda m, e: with_signature(e[1], keyid="\ud800")),
    "brackets": ("malformed_envelope", lambda m, e: b"[" * 100_000),
    "brackets that match": ("malformed_envelope", lambda m, e: b"[" * 100_000 + b"]" * 100_000),
    "brackets within": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":' + b"[" * 100_000 + b"}"),
    "objects within": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
    "more than an envelope is": ("malformed_envelope", lambda m, e: m.one[1][:-1] + b',"more":"' + b"x" * MIB + b'"}'),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_A_KEY)
def test_a_stranger_gets_nothing_verified(made: Signed, name: str) -> None:
    code, attack = WITHOUT_A_KEY[name]
    verdict = made.check(made.one[0], attack(made, made.parsed()))
    assert (verdict.code, verdict.number, len(verdict.receipts)) == (code, 2, 1)
    alone = made.check(attack(made, made.parsed()))
    assert (alone.code, alone.receipts) == (code, [])


def test_every_byte_of_an_envelope_counts(made: Signed) -> None:
    """None can be another one, not even where base64 has bits to spare."""
    envelope = made.one[0]
    for place in range(len(envelope)):
        spoilt = bytearray(envelope)
        spoilt[place] ^= 1 << place % 8
        verdict = made.check(bytes(spoilt))
        assert (verdict.ok, verdict.receipts) == (False, []), place


def test_white_space_around_its_members_says_nothing_else(made: Signed) -> None:
    loose = json.dumps(json.loads(made.one[0]), indent=1).encode()
    assert made.check(loose).receipts == made.check(made.one[0]).receipts
    assert made.check(b" " + made.one[0] + b" \r").receipts == made.check(made.one[0]).receipts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda trust: trust.replace(b'"ed25519"', b'"rsa"', 1), "no_trust"),
        (lambda trust: trust.replace(b'"scheme":"ed25519"', b'"scheme":"none"', 1), "no_trust"),
        (lambda trust: trust.replace(b'"receipts"', b'"bundles"'), "unknown_key"),
        (lambda trust: trust.replace(b'"keys":', b'"keys":[],"keys":', 1), "no_trust"),
        (lambda trust: trust.replace(b'"keys":', b'"keys":' + b"[" * 100_000, 1), "no_trust"),
        (lambda trust: trust[: len(trust) // 2], "no_trust"),
    ],
)
def test_a_trust_document_that_was_touched_makes_nobody_believed(made: Signed, change: Callable[[bytes], bytes], code: str) -> None:
    changed = change(made.trust)
    assert changed != made.trust
    assert verify(made.one[0], changed).code == code


def test_a_byte_of_the_trust_document_that_is_another_one_changes_nothing_that_is_said(made: Signed) -> None:
    """It is refused, or stands in what receipts are not judged by: when a key began."""
    said = made.check(made.one[0]).receipts
    for place in range(len(made.trust)):
        spoilt = bytearray(made.trust)
        spoilt[place] ^= 1
        verdict = verify(made.one[0], bytes(spoilt))
        assert verdict.receipts == said if verdict.ok else verdict.code in ("no_trust", "unknown_key"), place


def test_a_key_that_was_revoked_counts_no_more_and_another_one_beside_it_does(tmp_path: Path) -> None:
    signers = Signers(tmp_path / "signers")
    old = signers.current("receipts")
    signers.rotate("receipts")
    new = signers.current("receipts")
    payload = payload_of(erased(new)[0])
    by_old, by_new = (json.loads(msgspec.json.encode(key.sign(PAYLOAD_TYPE, payload))) for key in (old, new))
    both = spelled({**by_old, "signatures": [*by_old["signatures"], *by_new["signatures"]]})
    assert verify(both, msgspec.json.encode(signers.trust())).ok
    signers.revoke(old.public.key_id)
    trust = msgspec.json.encode(signers.trust())
    assert verify(spelled(by_old), trust).code == "revoked_key"
    found = verify(both, trust)
    assert (found.code, [each.key_id for each in found.receipts]) == ("verified", [new.public.key_id])
    named = {**by_old["signatures"][0], "keyid": by_new["signatures"][0]["keyid"]}
    assert verify(spelled({**by_old, "signatures": [named]}), trust).code == "wrong_signature"


def _other(name: bytes, value: bytes) -> Callable[[bytes], bytes]:
    """With another value of a member, as bytes."""

    def change(payload: bytes) -> bytes:
        start = payload.index(b'"%b":' % name) + len(name) + 3
        # A text, a number, or an object of one level: all that receipts have.
        end = next(at for at in range(start + 1, len(payload)) if payload[at : at + 1] in b",}" or payload[at : at + 2] == b'",')
        end = payload.index(b"}", start) + 1 if payload[start : start + 1] == b"{" else end
        end += payload[end : end + 1] == b'"'
        return payload[:start] + value + payload[end:]

    return change


def _counts(text: bytes) -> Callable[[bytes], bytes]:
    return _other(b"counts", b'{"sessions":%b}' % text)


WITH_A_KEY: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a version as a fraction": ("malformed_receipt", _other(b"schema_version", b"1.0")),
    "a version with an exponent": ("malformed_receipt", _other(b"schema_version", b"1e0")),
    "a version that is true": ("malformed_receipt", _other(b"schema_version", b"true")),
    "a version with a zero in front": ("malformed_receipt", _other(b"schema_version", b"01")),
    "a count as a fraction": ("malformed_receipt", _counts(b"3.0")),
    "a count with an exponent": ("malformed_receipt", _counts(b"3e0")),
    "a count below nothing": ("malformed_receipt", _counts(b"-1")),
    "a count of minus nothing": ("not_canonical", _counts(b"-0")),
    "a count with a zero in front": ("malformed_receipt", _counts(b"03")),
    "a count that not every reader holds": ("malformed_receipt", _counts(b"%d" % 2**53)),
    "a count of five thousand digits": ("malformed_receipt", _counts(b"9" * 5000)),
    "no number": ("malformed_receipt", _counts(b"NaN")),
    "a number without end": ("malformed_receipt", _counts(b"Infinity")),
    "a number beyond every double": ("malformed_receipt", _counts(b"1e999")),
    "a digit of another script": ("malformed_receipt", _counts("\uff13".encode())),
    "a count under a name out of order": ("malformed_receipt", _other(b"counts", '{"\uffff":1,"\U0001f600":2}'.encode())),
    "a count twice": ("not_canonical", _other(b"counts", b'{"sessions":3,"sessions":3}')),
    "a step of look-alikes": ("malformed_receipt", _other(b"step", '"\u0430ccepted"'.encode())),
    "a step with an escape": ("not_canonical", _other(b"step", b'"\\u0061ccepted"')),
    "a step in capitals": ("malformed_receipt", _other(b"step", b'"Accepted"')),
    "a format of look-alikes": ("malformed_receipt", _other(b"format", '"session-streams.er\u0430sure-receipt"'.encode())),
    "half a surrogate": ("not_canonical", _other(b"requested_by", b'"\\ud800"')),
    "half a surrogate, as bytes": ("malformed_receipt", _other(b"requested_by", b'"\xed\xa0\x80"')),
    "bytes that are overlong": ("malformed_receipt", _other(b"requested_by", b'"\xc0\xaf"')),
    "an erasure that is a path": ("malformed_receipt", _other(b"erasure_id", b'"../../x"')),
    "an erasure that tells more": ("malformed_receipt", _other(b"erasure_id", b'"ers_' + b"1" * 32 + b'\\nverified"')),
    "an erasure of look-alikes": ("malformed_receipt", _other(b"erasure_id", ('"\u0435rs_' + "1" * 32 + '"').encode())),
    "an erasure in capitals": ("malformed_receipt", _other(b"erasure_id", b'"ers_' + b"A" * 32 + b'"')),
    "a workspace that is a path": ("malformed_receipt", _other(b"workspace_id", b'"../../x"')),
    "a subject that is a path": ("malformed_receipt", _other(b"scope", b'{"id":"../../x","kind":"subject"}')),
    "a session for a subject": ("malformed_receipt", _other(b"scope", b'{"id":"sess_' + b"1" * 32 + b'","kind":"subject"}')),
    "everything erased": ("malformed_receipt", _other(b"scope", b'{"id":"subj_' + b"1" * 32 + b'","kind":"everything"}')),
    "a time of another form": ("malformed_receipt", _other(b"accepted_at", b'"20260101T000000Z"')),
    "a time of a week": ("malformed_receipt", _other(b"accepted_at", b'"2026-W01-1T00:00:00Z"')),
    "a time of another script": ("malformed_receipt", _other(b"accepted_at", '"\uff12026-01-01T00:00:00Z"'.encode())),
    "a time on no calendar": ("malformed_receipt", _other(b"accepted_at", b'"2026-02-30T00:00:00Z"')),
    "a time with another letter": ("malformed_receipt", _other(b"accepted_at", '"2026-01-01\u0422' "00:00:00Z\"".encode())),
    "a mark in front": ("malformed_receipt", lambda payload: b"\xef\xbb\xbf" + payload),
    "another encoding": ("malformed_receipt", lambda payload: payload.decode().encode("utf-16")),
    "something behind it": ("malformed_receipt", lambda payload: payload + b"{}"),
    "a line end behind it": ("not_canonical", lambda payload: payload + b"\n"),
    "cut": ("malformed_receipt", lambda payload: payload[:-1]),
    "brackets": ("malformed_receipt", _counts(b"[" * 100_000 + b"]" * 100_000)),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_A_KEY)
def test_what_is_signed_is_not_believed_for_being_signed(made: Signed, name: str) -> None:
    code, change = WITH_A_KEY[name]
    payload = payload_of(made.one[0])
    assert change(payload) != payload
    verdict = made.check(made.sign(change(payload)))
    assert (verdict.code, verdict.receipts) == (code, [])
    assert str(verdict).isascii()
    assert "\n" not in str(verdict)


def test_the_same_name_in_another_form_is_another_name(made: Signed) -> None:
    composed, decomposed = (
        made.sign(_other(b"requested_by", f'"{name}"'.encode())(payload_of(made.one[step])))
        for step, name in enumerate(("caf\u00e9", "cafe\u0301"))
    )
    assert (made.check(composed).ok, made.check(decomposed).ok) == (True, True)
    assert made.check(composed, decomposed).code == "contradiction"


class TestSize:
    def test_a_file_of_ten_gigabytes_is_not_looked_at(self, made: Signed, tmp_path: Path) -> None:
        """Even where receipts that are true stand in front: what follows them might say something else."""
        path = tmp_path / "receipts.ndjson"
        path.write_bytes(made.one[0] + b"\n")
        os.truncate(path, 10 * 2**30)
        verdict, peak = measured(lambda: verify(path, made.trust))
        assert (verdict.code, verdict.receipts) == ("too_large", [])
        assert peak < 80 * MIB

    @pytest.mark.parametrize("text", [b"[],", b'{"a":1},', b'"ab",'])
    def test_what_is_built_of_little_takes_no_more_than_its_bounds(self, made: Signed, text: bytes) -> None:
        """A sixteenth of what is taken for an envelope takes a sixteenth of 64 MiB; of more nothing is built."""
        small = b"[" + text * (MIB // 16 // len(text)) + b"1]"
        for file, limit in ((small, 4 * MIB), (made.one[0][:-1] + b',"more":' + small * 64 + b"}", 16 * MIB)):
            verdict, peak = measured(partial(verify, file, made.trust))
            assert verdict.code == "malformed_envelope"
            assert peak < limit, text

    def test_lines_of_nothing_are_not_gathered(self, made: Signed) -> None:
        verdict, peak = measured(lambda: verify(b"\n" * (4 * MIB) + made.one[0], made.trust))
        assert verdict.ok
        assert peak < 16 * MIB


def measured(work: Callable[[], Verdict]) -> tuple[Verdict, int]:
    """What came of it, and how much memory it took at most."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
