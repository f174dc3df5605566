"""Every vector of this folder but the bundle, recomputed from docs/wire-format.md and docs/export.md alone: the standard library and
`cryptography`.

It imports nothing of this project, so it also shows how little a reader in another language has to write:
`python tests/vectors/check.py`.
"""

import base64
import hashlib
import hmac
import json
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FOLDER = Path(__file__).parent
ABSENT = b"\xff\xff\xff\xff"


def lp(value):
    """Four bytes of length in front; an absent value has a length that no value has."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        value = b"\x01" if value else b"\x00"
    elif isinstance(value, int):
        value = value.to_bytes(8, "big", signed=True)
    elif isinstance(value, str):
        value = value.encode()
    return len(value).to_bytes(4, "big") + value


def unhex(text):
    return None if text is None else bytes.fromhex(text)


def genesis(session_id):
    return hashlib.sha256(b"session-streams/chain/v1" + session_id.encode()).digest()


def chain_input(event):
    """What an event's hash is taken over."""
    content = event["content"]
    key = content["key_reference"]
    parts = [lp(event[name]) for name in (
        "event_id", "session_id", "type", "workspace_id", "thread_id", "turn_id", "run_id", "attempt_generation",
        "native_task_id", "actor_id", "subject_id", "command_id", "occurred_at",
    )]  # fmt: skip
    parts.append(lp(b"".join(lp(link["relation"]) + lp(link["id"]) for link in event["links"])))
    parts.append(lp(unhex(event["attributes"])))
    parts.append(lp(content["state"]))
    parts.append(lp(None if key is None else lp(key["subject_id"]) + lp(key["session_id"]) + lp(key["expiry_day"])))
    parts.append(lp(unhex(content["digest"])))
    parts += [lp(event[name]) for name in ("sequence", "command_offset", "command_last", "accepted_at")]
    return unhex(event["previous_hash"]) + b"".join(parts)


def content_key(subject_secret, session_secret, day_secret):
    """HKDF-SHA256 (RFC 5869) without salt, for 32 bytes: one step of extract, one of expand."""
    secret = (session_secret if subject_secret is None else subject_secret) + session_secret + day_secret
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, b"session-streams/content/v1" + b"\x01", "sha256")


def associated_data(workspace_id, session_id, event_id, field):
    return lp(workspace_id) + lp(session_id) + lp(event_id) + lp(field)


def murmur2(key):
    """As Kafka's Java client has it, as an unsigned 32-bit number."""
    word, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * word & mask
        h = h * word & mask ^ (k ^ k >> 24) * word & mask
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * word & mask
    h = (h ^ h >> 13) * word & mask
    return h ^ h >> 15


def partition_of(key, partitions):
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def derived_id(prefix, parts, identity_key=None):
    message = lp(prefix) + b"".join(lp(part) for part in parts)
    digest = hashlib.sha256(message).digest() if identity_key is None else hmac.digest(identity_key, message, "sha256")
    return f"{prefix}_{digest[:16].hex()}"


def vectors(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def check_chain():
    for chain in vectors("chain"):
        previous = genesis(chain["session_id"])
        assert previous.hex() == chain["genesis"]
        for event in chain["events"]:
            assert event["previous_hash"] == previous.hex()
            assert chain_input(event).hex() == event["input"]
            previous = hashlib.sha256(chain_input(event)).digest()
            assert event["hash"] == previous.hex()


def check_keys():
    for vector in vectors("content-keys"):
        secrets = [unhex(vector[name]) for name in ("subject_secret", "session_secret", "day_secret")]
        assert content_key(*secrets).hex() == vector["key"]


def check_sealed():
    for vector in vectors("sealed"):
        aad = associated_data(*(vector[name] for name in ("workspace_id", "session_id", "event_id", "field")))
        assert aad.hex() == vector["associated_data"]
        nonce, salt, text = unhex(vector["nonce"]), unhex(vector["salt"]), vector["json_text"].encode()
        plaintext = AESGCM(unhex(vector["key"])).decrypt(nonce, unhex(vector["ciphertext"])[12:], aad)
        assert plaintext.hex() == vector["plaintext"]
        assert unhex(vector["ciphertext"])[:12] == nonce
        assert plaintext[:18] == bytes([1, vector["flags"]]) + salt
        assert vector["flags"] & 1 or plaintext[18:] == text  # decompressing is for those who have zstd
        assert hashlib.sha256(salt + text).hexdigest() == vector["digest"]


def stream_plaintext(size):
    """Byte i is 7 * (i % 251) % 251."""
    pattern = bytes(i * 7 % 251 for i in range(251))
    return (pattern * (size // 251 + 1))[:size]


def stream_key(secret, salt, place):
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, b"session-streams/stream/v1" + b"".join(lp(part) for part in place) + b"\x01", "sha256")


def check_sealed_streams():
    """Every chunk of a stream, sealed anew: the plaintext follows from its size, the stream from its digest."""
    for vector in vectors("sealed-stream"):
        place = [vector[name] for name in ("workspace_id", "session_id", "item_id", "part")]
        salt, prefix = unhex(vector["salt"]), unhex(vector["nonce_prefix"])
        key = stream_key(unhex(vector["secret"]), salt, place)
        assert key.hex() == vector["key"]
        plaintext, header = stream_plaintext(vector["plaintext_bytes"]), b"\x01" + salt + prefix
        assert hashlib.sha256(plaintext).hexdigest() == vector["plaintext_sha256"]
        chunks = [plaintext[start : start + 1048576] for start in range(0, len(plaintext), 1048576)] or [b""]
        nonces = [prefix + number.to_bytes(4, "big") + bytes([number == len(chunks) - 1]) for number in range(len(chunks))]
        sealed = [AESGCM(key).encrypt(nonce, chunk, header) for nonce, chunk in zip(nonces, chunks, strict=True)]
        stream = header + b"".join(sealed)
        assert vector["last_chunk"] is None or sealed[-1].hex() == vector["last_chunk"]
        assert (len(stream), hashlib.sha256(stream).hexdigest()) == (vector["sealed_bytes"], vector["sealed_sha256"])


def check_claims():
    """An event that claims its text, and the text, which lies elsewhere as a stream of one chunk."""
    for vector in vectors("claim-check"):
        key, text, blob = unhex(vector["key"]), vector["json_text"].encode(), unhex(vector["blob"])
        ids = [vector[name] for name in ("workspace_id", "session_id", "event_id")]
        plaintext = AESGCM(key).decrypt(unhex(vector["nonce"]), unhex(vector["ciphertext"])[12:], associated_data(*ids, vector["field"]))
        body = unhex(vector["blob_id"]) + len(text).to_bytes(8, "big")
        assert plaintext == b"\x01\x02" + unhex(vector["salt"]) + body
        assert vector["body"] == body.hex()
        assert hashlib.sha256(unhex(vector["salt"]) + text).hexdigest() == vector["digest"]
        assert vector["blob_item_id"] == f"{vector['event_id']}/{vector['blob_id']}"
        place = [*ids[:2], vector["blob_item_id"], vector["blob_part"]]
        nonce = blob[17:24] + bytes(4) + b"\x01"
        assert AESGCM(stream_key(key, blob[1:17], place)).decrypt(nonce, blob[24:], blob[:24]) == text


def check_partitions():
    for vector in vectors("partitions"):
        key = vector["key"].encode()
        assert murmur2(key) == vector["murmur2"] & 0xFFFFFFFF
        for partitions, partition in vector["partitions"].items():
            assert partition_of(key, int(partitions)) == partition


def check_ids():
    for vector in vectors("ids"):
        assert derived_id(vector["prefix"], vector["parts"], unhex(vector["identity_key"])) == vector["id"]


def check_request_digests():
    for vector in vectors("request-digests"):
        asked = [vector["method"], vector["path"], vector["body"], *vector["worker"]]
        digest = hmac.digest(unhex(vector["identity_key"]), b"".join(lp(part) for part in asked), "sha256")
        assert digest.hex() == vector["digest"], vector["note"]


def check_export():
    """docs/export.md, in as few lines as a reader of an export needs."""
    header, *positions, trailer = (json.loads(line) for line in (FOLDER / "export.ndjson").read_bytes().splitlines())
    assert (header["kind"], header["format"], header["format_version"]) == ("header", "checkfu.session-export", 1)
    previous = genesis(header["session_id"])
    assert header["genesis"] == previous.hex()
    assert [each["sequence"] for each in positions] == list(range(1, header["end_sequence"] + 1))
    for each in positions:
        content, attributes = each["content"], each["attributes"]
        assert (each["session_id"], each["previous_hash"]) == (header["session_id"], previous.hex())
        if "text" in content:
            assert hashlib.sha256(unhex(content["salt"]) + content["text"].encode()).hexdigest() == content["digest"]
        else:
            assert content["state"] == "none" or each["reason"] in ("expired", "erased", "omitted", "unreadable")
        held = None if attributes is None else base64.b64decode(attributes["bytes"]).hex()
        previous = hashlib.sha256(chain_input({**each, "attributes": held})).digest()
        assert each["hash"] == previous.hex()
    assert trailer == {"kind": "trailer", "count": len(positions), "last_hash": previous.hex()}


if __name__ == "__main__":
    for check in (
        check_chain, check_keys, check_sealed, check_sealed_streams, check_claims, check_partitions, check_ids, check_request_digests,
        check_export,
    ):  # fmt: skip
        check()
        print(f"{check.__name__}: as documented")
