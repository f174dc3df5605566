"""Signatures: what is signed, whose signature counts, and what a key file has to be."""

import base64
import json
import stat
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.custody.signing import KeyValue, NotVerified, PublicKey, SigningKey, encoding_to_sign, is_signed, opened
from streams.errors import Misconfigured

TYPE = "application/vnd.test+json"
PAYLOAD = b'{"a":1}'


def envelope(key: SigningKey, payload: bytes = PAYLOAD, payload_type: str = TYPE) -> dict[str, object]:
    signed = key.sign(payload_type, payload)
    return {
        "payloadType": signed.payload_type,
        "payload": base64.b64encode(signed.payload).decode(),
        "signatures": [{"keyid": each.keyid, "sig": base64.b64encode(each.sig).decode()} for each in signed.signatures],
    }


def refusal(text: dict[str, object], *trusted: SigningKey, payload_type: str = TYPE) -> str:
    with pytest.raises(NotVerified) as refused:
        opened(json.dumps(text).encode(), payload_type, trust(*trusted))
    return refused.value.reason


def trust(*keys: SigningKey) -> dict[str, PublicKey]:
    return {key.public.key_id: key.public for key in keys}


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


def test_the_bytes_that_are_signed_are_those_of_the_dsse_specification() -> None:
    """The example of https://github.com/secure-systems-lab/dsse, protocol.md."""
    assert encoding_to_sign("http://example.com/HelloWorld", b"hello world") == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_stranger_verifies_with_the_public_key_alone(key: SigningKey) -> None:
    signed = envelope(key)
    told = b"DSSEv1 25 application/vnd.test+json 7 " + base64.b64decode(str(signed["payload"]))
    signature = base64.b64decode(signed["signatures"][0]["sig"])  # type: ignore[index]
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public.keyval.public)).verify(signature, told)


def test_what_a_trusted_key_signed_is_opened(key: SigningKey) -> None:
    found = opened(json.dumps(envelope(key)).encode(), TYPE, trust(SigningKey.generate(), key))
    assert (found.payload, found.key_id) == (PAYLOAD, key.public.key_id)


def test_an_altered_payload_is_refused(key: SigningKey) -> None:
    assert refusal({**envelope(key), "payload": base64.b64encode(b'{"a":2}').decode()}, key) == "signature.wrong"


def test_a_key_that_is_not_trusted_counts_for_nothing(key: SigningKey) -> None:
    assert refusal(envelope(key), SigningKey.generate()) == "key.unknown"
    assert refusal(envelope(key)) == "key.unknown"


def test_a_signature_under_the_id_of_a_trusted_key_does_not_pass_for_its_own(key: SigningKey) -> None:
    forged = envelope(SigningKey.generate())
    forged["signatures"][0]["keyid"] = key.public.key_id  # type: ignore[index]
    assert refusal(forged, key) == "signature.wrong"


def test_a_signature_holds_for_its_type_of_payload_only(key: SigningKey) -> None:
    assert refusal(envelope(key), key, payload_type="application/other") == "payload.type"
    assert refusal({**envelope(key), "payloadType": "application/other"}, key, payload_type="application/other") == "signature.wrong"


def test_one_trusted_signature_among_others_is_enough(key: SigningKey) -> None:
    signed, other = envelope(key), envelope(SigningKey.generate())
    signed["signatures"] = [*other["signatures"], *signed["signatures"]]  # type: ignore[misc]
    assert opened(json.dumps(signed).encode(), TYPE, trust(key)).payload == PAYLOAD


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"payload": "#", "payloadType": "x", "signatures": []}', b"\xff\xfe"])
def test_what_is_no_envelope_is_refused(text: bytes, key: SigningKey) -> None:
    with pytest.raises(NotVerified, match=r"envelope\.malformed"):
        opened(text, TYPE, trust(key))


def test_a_member_of_great_depth_is_refused(key: SigningKey) -> None:
    deep = json.dumps(envelope(key)).encode()[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(NotVerified, match=r"envelope\.malformed"):
        opened(deep, TYPE, trust(key))


def test_base64_has_one_spelling(key: SigningKey) -> None:
    payload = b">>>???"
    signed = envelope(key, payload)
    assert (signed["payload"], opened(json.dumps(signed).encode(), TYPE, trust(key)).payload) == ("Pj4+Pz8/", payload)
    for spelling in ("Pj4-Pz8_", "Pj4+Pz8/\n", "Pj4+ Pz8/", "Pj4+Pz8/===="):
        assert refusal({**signed, "payload": spelling}, key) == "envelope.malformed"
    signature = signed["signatures"][0]["sig"]  # type: ignore[index]
    # 64 bytes leave four bits of the last letter to no byte.
    for spelling in (signature.rstrip("="), signature + "=", signature[:-3] + chr(ord(signature[-3]) + 1) + "=="):
        assert refusal({**signed, "signatures": [{"keyid": key.public.key_id, "sig": spelling}]}, key) == "envelope.malformed"


def test_two_signatures_of_one_key_are_refused(key: SigningKey) -> None:
    signed = envelope(key)
    assert refusal({**signed, "signatures": signed["signatures"] * 2}, key) == "envelope.malformed"  # type: ignore[operator]


def test_an_unknown_member_says_nothing(key: SigningKey) -> None:
    signed = envelope(key)
    signed["signatures"][0]["alg"] = "none"  # type: ignore[index]
    assert opened(json.dumps({**signed, "alg": "none"}).encode(), TYPE, trust(key)).payload == PAYLOAD


@settings(max_examples=100)
@given(st.data())
def test_whatever_becomes_of_an_envelope_ends_in_what_was_signed_or_in_a_reason(data: st.DataObject) -> None:
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    signed = envelope(key)
    values = st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=3)) | st.just({"keyid": "", "sig": ""})
    for name in data.draw(st.lists(st.sampled_from(sorted(signed)), max_size=1)):
        signed[name] = data.draw(values | st.lists(values))
    text = bytearray(json.dumps(signed).encode())
    for at in data.draw(st.lists(st.integers(0, len(text) - 1), max_size=2)):
        text[at] = data.draw(st.integers(0, 255))
    try:
        end = opened(bytes(text), TYPE, trust(key)).payload.decode()
    except NotVerified as error:
        end = error.reason
    assert end in {PAYLOAD.decode(), "envelope.malformed", "payload.type", "key.unknown", "signature.wrong"}


def test_what_is_written_is_what_was_written_before_a_library_wrote_it() -> None:
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    text = msgspec.json.encode(key.sign(TYPE, PAYLOAD))
    assert text == (
        b'{"payloadType":"application/vnd.test+json","payload":"eyJhIjoxfQ==","signatures":[{"keyid":'
        b'"56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c","sig":'
        b'"3Y1KrPEXWwts2Fn8j+SgvVbF77M+byWoc7Ciw8Z7B67pQ//8r6WrxyL55t5qM9RlhlT1zcTbrKD2KI5HEhVEDA=="}]}'
    )
    assert opened(text, TYPE, trust(key)).key_id == "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
    assert key.sign_bytes(b"told").hex() == (
        "db6ac66a104acecd08fba07f2f0f158c078529524af08abcbdee95fa3c45f6ecae183dcc70a1b2da65e494a24c927358d6c7c3ab17d5dc6a3cf2d0895a7ea80b"
    )


def test_a_signature_is_of_exactly_these_bytes_by_exactly_this_key(key: SigningKey) -> None:
    signature = key.sign_bytes(b"told")
    assert is_signed(key.public, signature, b"told")
    assert not is_signed(key.public, signature, b"tolD")
    assert not is_signed(SigningKey.generate().public, signature, b"told")
    assert not any(is_signed(key.public, odd, b"told") for odd in (b"", signature[:-1], signature + b"\0", bytes(64)))
    assert not is_signed(PublicKey(keyval=KeyValue("ab")), signature, b"told")


@pytest.mark.parametrize("members", [{"keytype": "rsa"}, {"scheme": "none"}, {"scheme": "rsassa-pss-sha256"}, {"keyval": {"public": "ab"}}])
def test_a_public_key_is_of_one_kind(members: dict[str, object], key: SigningKey) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(key.public) | members, PublicKey)


def test_an_envelope_without_a_signature_is_refused(key: SigningKey) -> None:
    assert refusal({**envelope(key), "signatures": []}, key) == "key.unknown"


def test_a_key_file_is_made_once_for_its_owner_and_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "signing.pem"
    made = SigningKey.at(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.at(path).public == made.public
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    SigningKey.at(path)
    path.chmod(0o644)
    with pytest.raises(Misconfigured, match="0644"):
        SigningKey.at(path)


def test_a_key_file_that_was_written_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    written = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n"
    path.write_bytes(written)
    path.chmod(0o600)
    key = SigningKey.at(path)
    assert key.public.key_id == "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
    key.store(tmp_path / "again.pem")
    assert (tmp_path / "again.pem").read_bytes() == written


def test_a_file_that_holds_no_such_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    path.write_bytes(b"no key")
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match="PEM"):
        SigningKey.at(path)
