"""What is done to a bundle, and what every verifier has to say of it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import rfc8785

from streams.custody.signing import SigningKey
from streams.exports.bundle import PAYLOAD_TYPE
from streams.exports.lines import missing_line
from streams.session.events import SessionAttributes
from tests.support.bundles import (
    MANIFEST,
    assembled,
    bundle_of,
    envelope_of,
    history,
    parts_of,
    payload_of,
    resealed,
    resigned,
    trust_of,
    with_part,
)
from tests.support.examples import made_up_id
from tests.support.exports import History, changed, spelled

TEN_GB = 10 * 1024**3
EVENTS = "events"


class Vector(NamedTuple):
    name: str
    code: str
    file: bytes
    trust: bytes


class Vectors:
    def __init__(self) -> None:
        self.key, self.other = SigningKey.generate(), SigningKey.generate()
        self.trust = trust_of(self.key)
        self.lines = history().lines()
        self.good = bundle_of(self.lines, self.key)
        self.parts = parts_of(self.good)
        self.second = bundle_of(history(made_up_id("sess", "other")).lines(), self.key)

    def all(self) -> list[Vector]:
        made: list[Vector] = []
        for source in (self._true, self._container, self._signed, self._manifests, self._sections, self._lies):
            for name, code, file, *trust in source():
                made.append(Vector(name, code, file, trust[0] if trust else self.trust))
        return made

    def _true(self) -> Iterator[tuple[Any, ...]]:
        yield "as it was made", "verified", self.good
        yield "of one message", "verified", bundle_of(History().tell(text='"x"').lines(), self.key)
        yield "as it was earlier", "verified", bundle_of(history().lines(end_sequence=9), self.key)
        yield "of a fork", "verified", bundle_of(self._fork().lines(), self.key)
        yield "with positions that are missing", "verified", bundle_of(self._with_missing(4, 9), self.key)
        yield "whose last position is missing", "verified", bundle_of(self._with_missing(len(self.lines) - 2), self.key)
        retired = trust_of(self.other, self.key)
        yield "signed by one key of several", "verified", self.good, retired

    def _fork(self) -> History:
        source = SessionAttributes(source_session_id=made_up_id("sess", "x"), through_sequence=7, source_hash="ab" * 32, depth=1)
        return History().tell("session.created", source).tell(text='"on"')

    def _with_missing(self, *gone: int) -> list[bytes]:
        """What the service tells of a log in which a record cannot be read."""
        lines = [missing_line(number, "record.malformed") if number in gone else line for number, line in enumerate(self.lines)]
        if len(lines) - 2 in gone:
            lines[-1] = changed(lines[-1], "last_hash", to=None)
        return lines

    def _container(self) -> Iterator[tuple[Any, ...]]:
        good, parts = self.good, self.parts
        yield "empty", "malformed_envelope", b""
        yield "a line end", "malformed_envelope", b"\n"
        for size in (10, len(good) // 2, len(good) - 1):
            yield f"cut behind {size} bytes", "malformed_envelope", good[:size]
        yield "cut behind its events", "malformed_envelope", parts[EVENTS]
        yield "cut with the reason", "malformed_envelope", parts[EVENTS] + b'{"kind":"error","status":503,"code":"x","next_sequence":9}\n'
        yield "with a byte behind", "malformed_envelope", good + b"\0"
        yield "with a line end behind", "malformed_envelope", good + b"\n"
        yield "without a line end", "malformed_envelope", good[:-1]
        yield "with another line end", "malformed_envelope", good[:-1] + b"\r\n"
        yield "with a byte in front", "wrong_lengths", b"\0" + good
        yield "with a byte order mark", "wrong_lengths", b"\xef\xbb\xbf" + good
        yield "with another bundle behind", "wrong_lengths", good + self.second
        yield "with another bundle in front", "wrong_lengths", self.second + good
        yield "nothing but its manifest", "wrong_lengths", parts[MANIFEST] + b"\n"
        yield "a line in front of the manifest", "wrong_lengths", assembled([*list(parts.values())[:-1], b"{}\n", parts[MANIFEST]])
        yield "with a section less", "wrong_lengths", assembled([parts[EVENTS], *list(parts.values())[2:]])
        yield "with a section twice", "wrong_lengths", assembled([parts[EVENTS], *parts.values()])
        yield "with sections in another order", "section_mismatch", assembled([*reversed(list(parts.values())[:-1]), parts[MANIFEST]])

    def _signed(self) -> Iterator[tuple[Any, ...]]:
        envelope, payload = self.parts[MANIFEST], payload_of(self.good)

        def enveloped(text: bytes) -> bytes:
            return with_part(self.good, MANIFEST, text)

        told = json.loads(envelope)
        signed = told["signatures"][0]
        yield "no trust", "no_trust", self.good, b"{}"
        yield "trust that is no JSON", "no_trust", self.good, b"\xff"
        yield "trust in another encoding", "no_trust", self.good, self.trust.decode().encode("utf-16")
        yield "trust of a version 1.0", "no_trust", self.good, self.trust.replace(b'"schema_version":1', b'"schema_version":1.0')
        yield "trust of depth", "no_trust", self.good, b"[" * 100_000
        yield "trust with a key twice", "no_trust", self.good, self.trust.replace(b'"purpose"', b'"purpose":"x","purpose"')
        yield "trust in an algorithm of none", "no_trust", self.good, self.trust.replace(b'"scheme":"ed25519"', b'"scheme":"none"')
        yield "trust in another kind of key", "no_trust", self.good, self.trust.replace(b'"keytype":"ed25519"', b'"keytype":"rsa"')
        yield "trust in a key under another's id", "no_trust", self.good, self._under_another_id()
        yield "trust in a key in capitals", "no_trust", self.good, self._in_capitals()
        yield "signed by a key that is listed twice, revoked once", "revoked_key", self.good, self._listed_twice()
        yield "signed by a stranger", "unknown_key", bundle_of(self.lines, self.other)
        yield "signed by a key for receipts", "unknown_key", self.good, trust_of(self.key, purpose="receipts")
        yield "signed by a key that is revoked", "revoked_key", self.good, trust_of(self.key, revoked=True)
        yield (
            "signed as something else",
            "wrong_type",
            enveloped(envelope_of(payload, self.key, "application/vnd.session-streams.receipt+json")),
        )
        yield (
            "of a type in a look-alike",
            "wrong_type",
            enveloped(envelope_of(payload, self.key, PAYLOAD_TYPE.replace("bundle", "bundl\u0435"))),
        )
        stolen = {**told, "signatures": [{**signed, "keyid": self.other.public.key_id}]}
        yield "under another's name", "wrong_signature", enveloped(rfc8785.dumps(stolen)), trust_of(self.key, self.other)
        zeros = {**told, "signatures": [{**signed, "sig": "A" * 86 + "=="}]}
        yield "a signature of zeros", "wrong_signature", enveloped(rfc8785.dumps(zeros))
        short = {**told, "signatures": [{**signed, "sig": "AAAA"}]}
        yield "a signature of three bytes", "wrong_signature", enveloped(rfc8785.dumps(short))
        for name, text in (
            ("without a signature", rfc8785.dumps({**told, "signatures": []})),
            ("with two signatures", rfc8785.dumps({**told, "signatures": [signed, signed]})),
            ("with an algorithm of its own", rfc8785.dumps({**told, "alg": "none"})),
            ("with a member twice", envelope.replace(b'{"payload"', b'{"payload":"","payload"')),
            ("with a space", envelope.replace(b'","', b'" ,"', 1)),
            ("with base64 that has a bit more", envelope.replace(b'=="}]}', b'/="}]}')),
            ("with an escape", envelope.replace(b"payloadType", b"payload\\u0054ype")),
            ("that is no JSON", b"\x00" * 40),
            ("of depth", b'{"payload":' + b"[" * 50_000),
            ("of another form", b'{"payload":1,"payloadType":2,"signatures":3}'),
            ("that is empty", b""),
            ("longer than any", b" " * (1024 * 1024 + 1)),
        ):
            yield f"an envelope {name}", "malformed_envelope", enveloped(text)

    def _in_capitals(self) -> bytes:
        public = self.key.public.keyval.public.encode()
        return self.trust.replace(public, public.upper())

    def _listed_twice(self) -> bytes:
        told, revoked = json.loads(self.trust), json.loads(trust_of(self.key, revoked=True))
        return json.dumps({**told, "keys": [*revoked["keys"], *told["keys"]]}).encode()

    def _under_another_id(self) -> bytes:
        return trust_of(self.other).replace(self.other.public.key_id.encode(), self.key.public.key_id.encode())

    def _manifests(self) -> Iterator[tuple[Any, ...]]:
        """Signed by the right key: what a manifest is must not depend on who reads it."""
        payload = payload_of(self.good)

        def of(text: bytes) -> bytes:
            return with_part(self.good, MANIFEST, envelope_of(text, self.key))

        def told(change: Any) -> bytes:
            return resigned(self.good, self.key, change)

        yield "a member twice", "duplicate_key", of(payload.replace(b'"session_id"', b'"session_id":"x","session_id"', 1))
        yield "a member twice, further in", "duplicate_key", of(payload.replace(b'"items"', b'"items":1,"items"', 1))
        yield "a member twice by an escape", "duplicate_key", of(payload.replace(b'"items"', b'"it\\u0065ms":1,"items"', 1))
        for number in (b"1.0", b"1e0", b"10e-1", b"-0"):
            changed_to = payload.replace(b'"from_sequence":1,', b'"from_sequence":' + number + b",")
            yield f"a number {number.decode()}", "not_canonical", of(changed_to)
        yield "a number 01", "malformed_manifest", of(payload.replace(b'"from_sequence":1,', b'"from_sequence":01,'))
        yield "NaN", "malformed_manifest", of(payload.replace(b'"from_sequence":1,', b'"from_sequence":NaN,'))
        yield "spaces", "not_canonical", of(payload.replace(b",", b", "))
        yield "an escape", "not_canonical", of(payload.replace(b"sess_", b"\\u0073ess_", 1))
        yield (
            "members in another order",
            "not_canonical",
            of(json.dumps(dict(reversed(json.loads(payload).items())), separators=(",", ":")).encode()),
        )
        yield "no JSON", "malformed_manifest", of(b"\xff\xfe")
        yield "half a character", "malformed_manifest", of(payload.replace(b"sess_", b"\\ud800", 1))
        yield "a list", "malformed_manifest", of(b"[]")
        yield "another version", "unknown_format", told(lambda each: each.update(schema_version=2))
        yield "another format", "unknown_format", told(lambda each: each.update(format="checkfu.session-bund\u217ce"))
        yield "an export's format", "unknown_format", told(lambda each: each.update(format="checkfu.session-export"))
        yield "a member more", "malformed_manifest", told(lambda each: each.update(more=1))
        yield "a section less", "malformed_manifest", told(lambda each: each["sections"].pop())
        yield "sections in another order", "malformed_manifest", told(lambda each: each["sections"].reverse())
        yield "a section in a look-alike", "malformed_manifest", told(lambda each: each["sections"][2].update(name="w\u043erk"))
        yield "a gap without a reason", "malformed_manifest", told(lambda each: each["sections"][2]["gaps"].append({"count": 1}))
        yield "a section that leads out", "malformed_manifest", told(lambda each: each["sections"][2].update(name="../../etc/passwd"))
        yield "a section twice", "malformed_manifest", told(lambda each: each["sections"].insert(2, each["sections"][1]))
        yield "a file's name", "malformed_manifest", told(lambda each: each["sections"][2].update(file="../../work.ndjson"))
        yield "a length below nothing", "malformed_manifest", told(lambda each: each["sections"][2].update(bytes=-1))
        yield "true for a count", "malformed_manifest", told(lambda each: each["sections"][2].update(items=True))
        yield "a number of 2^53", "malformed_manifest", of(payload.replace(b'"from_sequence":1,', b'"from_sequence":9007199254740992,'))
        yield "a length of ten gigabytes", "wrong_lengths", told(lambda each: each["sections"][0].update(bytes=TEN_GB))
        yield "lengths that lap over", "section_mismatch", told(self._shift)

    @staticmethod
    def _shift(told: dict[str, Any]) -> None:
        """The border between two sections, one byte on."""
        told["sections"][1]["bytes"] += 1
        told["sections"][2]["bytes"] -= 1

    def _sections(self) -> Iterator[tuple[Any, ...]]:
        """Without the key."""
        parts, other = self.parts, parts_of(self.second)
        lines = parts[EVENTS].splitlines(keepends=True)
        earlier = parts_of(bundle_of(history().lines(end_sequence=9), self.key))
        yield (
            "positions in another order",
            "section_mismatch",
            with_part(self.good, EVENTS, b"".join([*lines[:3], lines[4], lines[3], *lines[5:]])),
        )
        yield "a position less", "wrong_lengths", with_part(self.good, EVENTS, b"".join([*lines[:3], *lines[4:]]))
        yield "cut and given a trailer", "wrong_lengths", with_part(self.good, EVENTS, earlier[EVENTS])
        yield "another session's events", "section_mismatch", with_part(self.good, EVENTS, other[EVENTS])
        yield "another session's work", "section_mismatch", with_part(self.good, "work", other["work"])
        yield "another session's manifest", "section_mismatch", with_part(self.good, MANIFEST, other[MANIFEST])
        yield "an older manifest", "wrong_lengths", with_part(self.good, MANIFEST, earlier[MANIFEST])
        swapped = {**parts, "work": parts["interactions"], "interactions": parts["work"]}
        yield "two sections in each other's places", "section_mismatch", assembled(swapped.values())
        yield "an emptied section", "wrong_lengths", with_part(self.good, "artifacts", b"")
        yield "a line end less", "wrong_lengths", with_part(self.good, "work", parts["work"][:-1])
        yield "a character in a look-alike", "wrong_lengths", with_part(self.good, "work", parts["work"].replace(b"run", b"r\xd1\x83n", 1))

    def _lies(self) -> Iterator[tuple[Any, ...]]:
        """By whoever has the key: what follows from the events needs no belief."""
        good, key, lines = self.good, self.key, self.lines

        def events(*told: bytes) -> bytes:
            return resealed(good, key, EVENTS, b"".join(told))

        other = history(made_up_id("sess", "other")).lines()
        for name, file in (
            ("positions in another order", events(*lines[:3], lines[4], lines[3], *lines[5:])),
            ("a position less", events(*lines[:3], *lines[4:])),
            ("a position of another session", events(*lines[:3], other[3], *lines[4:])),
            ("all positions of another session", events(*other)),
            ("another text", events(*lines[:6], changed(lines[6], "content", "text", to='"other"'), *lines[7:])),
            ("another field", events(*lines[:6], changed(lines[6], "accepted_at", to=1), *lines[7:])),
            ("other attributes", events(*lines[:3], changed(lines[3], "attributes", "decoded", "lane", to="b"), *lines[4:])),
            ("another fraction", events(*lines[:-2], changed(lines[-2], "attributes", "decoded", "reward", to=0.2), lines[-1])),
            ("a reason for what has none", events(*lines[:-2], changed(lines[-2], "kind", to="unavailable"), lines[-1])),
            ("a member more", events(*lines[:6], spelled({**json.loads(lines[6]), "more": 1}), *lines[7:])),
            ("a member twice", events(*lines[:6], lines[6].replace(b'"kind":"event"', b'"kind":"event","kind":"event"'), *lines[7:])),
            ("a space", events(*lines[:6], lines[6].replace(b",", b", ", 1), *lines[7:])),
            ("a number 1e0", events(*lines[:2], lines[2].replace(b'"sequence":2', b'"sequence":2e0'), *lines[3:])),
            ("no trailer", events(*lines[:-1])),
            ("another count", events(*lines[:-1], changed(lines[-1], "count", to=3))),
            ("a part", events(*history().lines(from_sequence=2))),
            ("an error's line", events(*lines[:-1], b'{"kind":"error","status":503,"code":"service.x","next_sequence":9}\n')),
        ):  # fmt: skip
            yield f"events signed with {name}", "events_untrue", file
        for name, file in (
            ("events without a line end", events(*lines[:-1], lines[-1][:-1])),
            ("no events", events()),
            ("no gap", resigned(good, key, lambda each: each["sections"][0].update(gaps=[]))),
            ("a gap that says less", resigned(good, key, lambda each: each["sections"][0]["gaps"][0].update(count=1))),
            ("a gap of another kind", resigned(good, key, lambda each: each["sections"][0]["gaps"][0].update(reason="expired"))),
            ("an item more", resigned(good, key, lambda each: each["sections"][2].update(items=99))),
            ("an item of half a line", resealed(good, key, "work", self.parts["work"] + b"{")),
            ("another end", resigned(good, key, lambda each: each.update(end_sequence=3))),
            ("another hash", resigned(good, key, lambda each: each.update(last_hash="ab" * 32))),
            ("another workspace", resigned(good, key, lambda each: each.update(workspace_id="ws_x"))),
        ):  # fmt: skip
            yield f"a manifest signed with {name}", "manifest_untrue", file
