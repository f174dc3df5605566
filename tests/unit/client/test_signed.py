"""Envelopes and trust documents are read in one spelling, and whatever else they are ends in a reason."""

import base64
import hashlib
import json
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from session_streams.signed import Keys, NotVerified, is_spelled, opened, trusted
from streams.custody.signing import SigningKey

TYPE = "application/vnd.test+json"
PAYLOAD = b'{"a":">>>???"}'
"""Its base64 has both letters that another alphabet writes otherwise, and padding."""
KEY, OTHER = SigningKey.generate(), SigningKey.generate()
ENVELOPE_REASONS = {"envelope.malformed", "payload.type", "key.unknown", "key.revoked", "signature.wrong"}
Document = dict[str, Any]

KEPT_PUBLIC = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
KEPT = (
    b'{"payloadType":"application/vnd.test+json","payload":"eyJhIjoxfQ==","signatures":[{"keyid":'
    b'"56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c","sig":'
    b'"3Y1KrPEXWwts2Fn8j+SgvVbF77M+byWoc7Ciw8Z7B67pQ//8r6WrxyL55t5qM9RlhlT1zcTbrKD2KI5HEhVEDA=="}]}'
)
"""Signed before a library did it."""


def trust_of(*keys: SigningKey, revoked: bool = False, purpose: str = "bundles") -> Document:
    return {
        "format": "session-streams.trust",
        "schema_version": 1,
        "keys": [
            {"key_id": key.public.key_id, "purpose": purpose, "revoked_at": "2026-01-01T00:00:00Z" if revoked else None}
            | msgspec.to_builtins(key.public)
            for key in keys
        ],
    }


def keys_of(*keys: SigningKey, revoked: bool = False) -> Keys:
    return trusted(json.dumps(trust_of(*keys, revoked=revoked)).encode(), "bundles")


def signed_by(key: SigningKey = KEY) -> Document:
    told: Document = json.loads(msgspec.json.encode(key.sign(TYPE, PAYLOAD)))
    return told


def refusal(envelope: Document | bytes, keys: Keys, payload_type: str = TYPE) -> str:
    with pytest.raises(NotVerified) as refused:
        opened(envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode(), payload_type, keys)
    return refused.value.reason


def of_signature(envelope: Document, **members: Any) -> Document:
    return {**envelope, "signatures": [{**envelope["signatures"][0], **members}]}


def test_what_was_signed_before_verifies_still() -> None:
    key_id = hashlib.sha256(bytes.fromhex(KEPT_PUBLIC)).hexdigest()
    found = opened(KEPT, TYPE, Keys({key_id: bytes.fromhex(KEPT_PUBLIC)}, frozenset()))
    assert (found.payload, found.key_id) == (b'{"a":1}', key_id)


def test_one_key_that_counts_is_enough_and_an_unknown_member_says_nothing() -> None:
    told = {**of_signature(signed_by(), alg="none"), "more": [1]}
    told["signatures"].insert(0, signed_by(OTHER)["signatures"][0])
    assert opened(json.dumps(told).encode(), TYPE, keys_of(KEY)).key_id == KEY.public.key_id


def test_each_refusal_has_its_reason() -> None:
    told = signed_by()
    forged = of_signature(told, keyid=OTHER.public.key_id)
    assert refusal(told, keys_of(KEY), "application/other") == "payload.type"
    assert refusal(told, keys_of(OTHER)) == refusal({**told, "signatures": []}, keys_of(KEY)) == "key.unknown"
    assert refusal(told, keys_of(KEY, revoked=True)) == "key.revoked"
    assert refusal(forged, keys_of(KEY, OTHER)) == "signature.wrong"
    assert refusal(of_signature(told, sig="AAAA"), keys_of(KEY)) == "signature.wrong"
    assert refusal({**told, "payload": base64.b64encode(b"{}").decode()}, keys_of(KEY)) == "signature.wrong"


@pytest.mark.parametrize("where", ["payload", "sig"])
def test_base64_has_one_spelling(where: str) -> None:
    told = signed_by()
    text = str(told["payload"] if where == "payload" else told["signatures"][0]["sig"])
    # 64 and 14 bytes: two bits, or four, of the last letter are of no byte.
    last = text.rstrip("=")[-1]
    odd = text.rstrip("=")[:-1] + chr(ord(last) + 1) + "=" * text.count("=")
    assert base64.b64decode(odd) == base64.b64decode(text)
    spellings = [text.rstrip("="), text + "=", text + "\n", " " + text, odd, text.replace("+", "-").replace("/", "_").replace("=", "")]
    if where == "payload":
        spellings.append(text.replace("+", "-").replace("/", "_"))
    for spelling in spellings:
        assert spelling != text
        changed = {**told, "payload": spelling} if where == "payload" else of_signature(told, sig=spelling)
        assert refusal(changed, keys_of(KEY)) == "envelope.malformed"


def test_two_of_what_there_is_one_of_are_malformed() -> None:
    told = signed_by()
    assert refusal({**told, "signatures": told["signatures"] * 2}, keys_of(KEY)) == "envelope.malformed"
    twice = json.dumps(told).encode().replace(b'"payloadType"', b'"payloadType": "x", "payloadType"')
    assert refusal(twice, keys_of(KEY)) == "envelope.malformed"


NO_TEXT: list[Any] = [None, 1, []]
NO_LIST_OF_SIGNATURES: list[Any] = [{}, "", None, [[]], [""], [{}], [[["keyid", KEY.public.key_id], ["sig", "AAAA"]]]]
OF_OTHER_KINDS: list[Document] = [
    *({**signed_by(), name: value} for name in ("payload", "payloadType") for value in NO_TEXT),
    *({**signed_by(), "signatures": value} for value in NO_LIST_OF_SIGNATURES),
    *(of_signature(signed_by(), **{name: value}) for name in ("keyid", "sig") for value in NO_TEXT),
    *(of_signature(signed_by(), sig=value) for value in ("\ud800", "\u00e9")),
]


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[]", b"{}", b"1" * 5000, b"[" * 100_000, b'{"x":' * 100_000, *(json.dumps(each).encode() for each in OF_OTHER_KINDS)],
)
def test_what_is_no_envelope_is_malformed(text: bytes) -> None:
    assert refusal(text, keys_of(KEY)) == "envelope.malformed"
    assert not is_spelled(text)


def test_one_spelling_has_no_byte_too_many() -> None:
    told = signed_by()
    good = rfc8785.dumps(told)
    assert is_spelled(good)
    assert opened(good, TYPE, keys_of(KEY)).payload == PAYLOAD
    others = [
        json.dumps(told).encode(),
        good + b"\n",
        good.replace(b"vnd", b"\\u0076nd"),
        good.decode().encode("utf-16"),
        rfc8785.dumps({**told, "alg": "none"}),
        rfc8785.dumps(of_signature(told, alg="none")),
        rfc8785.dumps({**told, "signatures": []}),
        rfc8785.dumps({**told, "signatures": [*told["signatures"], *signed_by(OTHER)["signatures"]]}),
        json.dumps({**told, "payloadType": "\ud800"}, separators=(",", ":")).encode(),
    ]
    assert [is_spelled(other) for other in others] == [False] * len(others)


@pytest.mark.parametrize(
    "members",
    [
        {"keytype": "rsa"},
        {"scheme": "rsassa-pss-sha256"},
        {"scheme": "none"},
        {"keytype": "ecdsa", "scheme": "ecdsa-sha2-nistp256"},
        {"keytype": None},
        {"key_id": OTHER.public.key_id},
        {"keyval": {"public": KEY.public.keyval.public.upper()}},
        {"keyval": {"public": " " + KEY.public.keyval.public}},
        {"keyval": {"public": KEY.public.keyval.public[2:]}},
        {"keyval": KEY.public.keyval.public},
    ],
)
@pytest.mark.parametrize("purpose", ["bundles", "receipts"])
def test_a_key_of_another_kind_or_form_makes_no_trust_whatever_it_is_for(members: Document, purpose: str) -> None:
    document = trust_of(KEY, purpose=purpose)
    document["keys"][0] |= members
    with pytest.raises(NotVerified, match=r"trust\.malformed"):
        trusted(json.dumps(document).encode(), "bundles")


def test_a_key_counts_for_its_purpose_only() -> None:
    document = json.dumps(trust_of(KEY, purpose="receipts")).encode()
    assert trusted(document, "bundles").counting == {}
    assert trusted(document, "receipts").counting.keys() == {KEY.public.key_id}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["keyid", "sig", "x"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.data())
def test_whatever_becomes_of_an_envelope_ends_in_what_was_signed_or_in_a_reason(data: st.DataObject) -> None:
    told = signed_by()
    for name in data.draw(st.lists(st.sampled_from([*told, "keyid", "sig"]), max_size=2)):
        if name in told:
            told[name] = data.draw(JSON_VALUES)
        else:
            told["signatures"] = [{**signed_by()["signatures"][0], name: data.draw(JSON_VALUES)}]
    text = bytearray(json.dumps(told).encode())
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[at] = data.draw(st.integers(0, 255))
    try:
        end = opened(bytes(text), TYPE, keys_of(KEY)).payload.decode()
    except NotVerified as error:
        end = error.reason
    assert end in {PAYLOAD.decode(), *ENVELOPE_REASONS}
    assert is_spelled(bytes(text)) in (True, False)


@settings(max_examples=150)
@given(st.data())
def test_whatever_becomes_of_a_trust_document_ends_in_keys_that_it_held_or_in_a_reason(data: st.DataObject) -> None:
    document = trust_of(KEY, OTHER)
    members = [(place, name) for place in (document, *document["keys"]) for name in place]
    for at in data.draw(st.lists(st.integers(0, len(members) - 1), max_size=2)):
        place, name = members[at]
        place[name] = data.draw(JSON_VALUES)
    text = bytearray(json.dumps(document).encode())
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[at] = data.draw(st.integers(0, 255))
    found, reason = Keys({}, frozenset()), "trust.malformed"
    try:
        found = trusted(bytes(text), "bundles")
    except NotVerified as error:
        reason = error.reason
    known = {key.public.key_id: bytes.fromhex(key.public.keyval.public) for key in (KEY, OTHER)}
    assert reason == "trust.malformed"
    assert found.counting.items() <= known.items()
    assert found.revoked <= known.keys()
