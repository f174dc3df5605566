"""Signatures: what is signed, whose signature counts, and what a key file has to be."""

import base64
import json
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from streams.custody.signing import NotVerified, PublicKey, SigningKey, encoding_to_sign, opened
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


def test_a_file_that_holds_no_such_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    path.write_bytes(b"no key")
    path.chmod(0o600)
    with pytest.raises(Misconfigured, match="PEM"):
        SigningKey.at(path)
