"""What is done to a bundle, and what every verifier has to say of it."""

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import rfc8785

from streams.custody.signing import SigningKey
from streams.exports.bundle import PAYLOAD_TYPE
from streams.exports.lines import missing_line
from streams.session.events import RunAttributes, SessionAttributes
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
        for source in (self._true, self._container, self._signed, self._manifests, self._sources_and_gaps, self._sections, self._lies):
            for name, code, file, *trust in source():
                made.append(Vector(name, code, file, trust[0] if trust else self.trust))
        return made

    def _true(self) -> Iterator[tuple[Any, ...]]:
        yield "as it was made", "verified", self.good
        yield "of one message", "verified", bundle_of(History().tell(text='"x"').lines(), self.key)
        yield "as it was earlier", "verified", bundle_of(history().lines(end_sequence=9), self.key)
        yield "of a fork", "verified", bundle_of(self._fork().lines(), self.key)
        yield "of a fork of what has no number here", "verified", bundle_of(self._fork(through_sequence=2**60).lines(), self.key)
        yield "of a fork that says little", "verified", bundle_of(self._fork(through_sequence=None, source_hash=None).lines(), self.key)
        yield "with positions that are missing", "verified", bundle_of(self._with_missing(4, 9), self.key)
        yield "whose last position is missing", "verified", bundle_of(self._with_missing(len(self.lines) - 2), self.key)
        yield "signed by one key of several", "verified", self.good, trust_of(self.other, self.key)
        yield "signed by a key that is listed for something else as well", "verified", self.good, self._also_for("receipts")
        yield "with characters that are escaped", "verified", bundle_of(self._odd().lines(), self.key)

    def _fork(self, through_sequence: int | None = 7, source_hash: str | None = "ab" * 32) -> History:
        source = SessionAttributes(
            source_session_id=made_up_id("sess", "x"), through_sequence=through_sequence, source_hash=source_hash, depth=1
        )  # fmt: skip
        return History().tell("session.created", source).tell(text='"on"')

    def _odd(self) -> History:
        """Characters and numbers that not everybody spells alike."""
        odd = '\x00\x0b\x1b\x1f\x7f\u2028\U0001f600\\/"\t'
        told = History().tell("run.accepted", RunAttributes(lane="a"), run_id=odd)
        for number in (1e-7, 1e-4, 0.1 + 0.2, 1e15, 1e16, 2e-3, 2e23, 5e-324, 1.7976931348623157e308, -0.0, math.nan, -math.inf):
            told.tell("run.completed", RunAttributes(reward=number), run_id=odd)
        return told

    def _also_for(self, purpose: str, *, revoked: bool = False) -> bytes:
        told, other = json.loads(self.trust), json.loads(trust_of(self.key, purpose=purpose, revoked=revoked))
        return json.dumps({**told, "keys": [*told["keys"], *other["keys"]]}).encode()

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
        for name, keys in (("an object", b"{}"), ("a text", b'""'), ("nothing", b"null")):
            yield f"trust whose keys are {name}", "no_trust", self.good, self.trust[: self.trust.index(b'"keys":') + 7] + keys + b"}"
        yield "trust with NaN", "no_trust", self.good, self.trust[:-1] + b',"x":NaN}'
        yield "trust with a purpose that is none", "no_trust", self.good, self.trust.replace(b'"bundles"', b"5")
        yield "trust that is longer than any", "no_trust", self.good, self.trust + b" " * 1024 * 1024
        yield "signed by a key that is revoked for something else", "revoked_key", self.good, self._also_for("receipts", revoked=True)
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
        for name, public in (("is no point", b"\x02" + bytes(31)), ("is too large", b"\xff" * 32)):
            yield f"under a key that {name}", "wrong_signature", *self._under(public)
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

    def _under(self, public: bytes) -> tuple[bytes, bytes]:
        """The good one under the name of other bytes, which count as a key."""
        envelope, trust = json.loads(self.parts[MANIFEST]), json.loads(self.trust)
        envelope["signatures"][0]["keyid"] = trust["keys"][0]["key_id"] = hashlib.sha256(public).hexdigest()
        trust["keys"][0]["keyval"]["public"] = public.hex()
        return with_part(self.good, MANIFEST, rfc8785.dumps(envelope)), json.dumps(trust).encode()

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
        yield "a member twice, and cut", "malformed_manifest", of(payload.replace(b'"items"', b'"items":1,"items"', 1)[:-1])
        yield "a member twice, and a fraction", "duplicate_key", of(payload.replace(b'"items"', b'"items":1.5,"items"', 1))
        for number in (
            b"1.0",
            b"1e0",
            b"10e-1",
            b"0.1",
            b"1e400",
            b"01",
            b"NaN",
            b"9007199254740992",
            b"-9223372036854775808",
            b"1" * 5000,
        ):
            changed_to = payload.replace(b'"from_sequence":1,', b'"from_sequence":' + number + b",")
            yield f"a number {number[:20].decode()}", "malformed_manifest", of(changed_to)
        yield "a number -0", "not_canonical", of(payload.replace(b'"from_sequence":1,', b'"from_sequence":-0,'))
        yield "brackets in each other", "malformed_manifest", of(payload[:-1] + b',"x":' + b"[" * 90 + b"]" * 90 + b"}")
        yield "spaces", "not_canonical", of(payload.replace(b",", b", "))
        yield "an escape", "not_canonical", of(payload.replace(b"sess_", b"\\u0073ess_", 1))
        yield (
            "members in another order",
            "not_canonical",
            of(json.dumps(dict(reversed(json.loads(payload).items())), separators=(",", ":")).encode()),
        )
        yield "no JSON", "malformed_manifest", of(b"\xff\xfe")
        yield "half a character", "malformed_manifest", of(payload.replace(b"sess_", b"\\ud800", 1))
        yield "half a name", "malformed_manifest", of(payload.replace(b'"session_id"', b'"\\ud800"', 1))
        yield "a list", "malformed_manifest", of(b"[]")
        for version in (2, True, "1", None):
            yield f"a version {version!r}", "unknown_format", told(lambda each, to=version: each.update(schema_version=to))
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
        yield "a hash that is a number", "malformed_manifest", told(lambda each: each.update(last_hash=1))
        yield "a name that a terminal obeys", "events_untrue", told(lambda each: each.update(session_id="\x1b[2J\nverified"))
        yield "a length of ten gigabytes", "wrong_lengths", told(lambda each: each["sections"][0].update(bytes=TEN_GB))
        yield "lengths that lap over", "section_mismatch", told(self._shift)

    def _sources_and_gaps(self) -> Iterator[tuple[Any, ...]]:
        """That an empty section is empty for a reason, and what each is made of, is in every manifest."""

        def told(number: int, **members: Any) -> bytes:
            return resigned(self.good, self.key, lambda each: each["sections"][number].update(members))

        def emptied(told: dict[str, Any]) -> None:
            next(each for each in told["sections"] if each["name"] == "work").update(gaps=[])

        yield (
            "an empty section without a gap",
            "malformed_manifest",
            resigned(resealed(self.good, self.key, "work", b""), self.key, emptied),
        )
        source = json.loads(payload_of(self.good))["sections"][2]["source"]
        for name, other in (
            ("nothing", {}),
            ("other families", {**source, "families": source["families"][:-1]}),
            ("families in another order", {**source, "families": source["families"][::-1]}),
            ("something more", {**source, "format": "checkfu.session-export"}),
            ("a later part", {**source, "from_sequence": 2}),
            ("a first position that is true", {**source, "from_sequence": True}),
            ("another end", {**source, "through_sequence": source["through_sequence"] + 1}),
            ("a list", [source]),
        ):
            yield f"a section made of {name}", "malformed_manifest", told(2, source=other)
        fork = {"reason": "in_source_session", "session_id": made_up_id("sess", "x")}
        for name, gap in (
            ("with lines and ESC in its reason", {"reason": "none\n\x1b[2Jverified"}),
            ("with a long reason", {"reason": "a" * 41}),
            ("with an empty reason", {"reason": ""}),
            ("with half a count", {"reason": "erased", "count": 1.5}),
            ("with a count below nothing", {"reason": "erased", "count": -1}),
            ("with a count that is true", {"reason": "erased", "count": True}),
            ("without its last position", {"reason": "erased", "count": 1, "first_sequence": 1}),
            ("without its count", {"reason": "erased", "first_sequence": 1, "last_sequence": 1}),
            ("with a member more", {"reason": "erased", "more": 1}),
            ("of a fork with a count", {**fork, "count": 1}),
            ("of a fork of no session", {"reason": "in_source_session", "source_hash": "ab" * 32}),
            ("of a fork of another name", {**fork, "session_id": "sess_x"}),
            ("of a fork with half a hash", {**fork, "source_hash": "ab"}),
            ("that is a text", "none_recorded"),
        ):
            yield f"a gap {name}", "malformed_manifest", told(2, gaps=[gap])
        forked = {**fork, "source_hash": "ab" * 32, "through_sequence": 2}
        for name, gaps in (
            ("of a reason of its own", [{"reason": "of_its_own", "count": 0}]),
            ("of a fork", [forked]),
            ("of a little known fork", [fork]),
        ):
            yield f"gaps {name}", "verified", told(2, gaps=gaps)
        yield "gaps in another order", "malformed_manifest", told(2, gaps=[{"reason": "b"}, {"reason": "a"}])

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
        fork = bundle_of(self._fork().lines(), key)
        source = json.loads(payload_of(fork))["sections"][0]["gaps"][0]
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
            ("a header with a space", events(lines[0].replace(b",", b", ", 1), *lines[1:])),
            ("a trailer with a space", events(*lines[:-1], lines[-1].replace(b",", b", ", 1))),
            ("a version that is a text", events(lines[0].replace(b'"format_version":1', b'"format_version":"1"'), *lines[1:])),
            ("a last position that is a text", events(changed(lines[0], "end_sequence", to=str(len(lines) - 2)), *lines[1:])),
            ("a fraction with a zero more", events(*lines[:-2], lines[-2].replace(b'"reward":0.1', b'"reward":0.10'), lines[-1])),
            ("an escape", events(*lines[:6], lines[6].replace(b"message.app", b"message\\u002eapp"), *lines[7:])),
            ("a text that goes on for two gigabytes", events(*lines[:3], self._endless(lines[3]), *lines[4:])),
            ("an empty line behind", events(*lines, b"\n")),
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
            ("an item that is no JSON", resealed(good, key, "work", b"hello\n")),
            ("an item that is no UTF-8", resealed(good, key, "work", b'{"a":"\xff"}\n')),
            ("an item that is a list", resealed(good, key, "work", b"[]\n")),
            ("an item that is an empty line", resealed(good, key, "work", self.parts["work"] + b"\n")),
            ("an item with a space", resealed(good, key, "work", b'{"a": 1}\n')),
            ("an item with a member twice", resealed(good, key, "work", b'{"a":1,"a":1}\n')),
            ("an item with a fraction", resealed(good, key, "work", b'{"a":0.5}\n')),
            ("an item that is longer than any", resealed(good, key, "work", b'{"a":"' + b"x" * 4 * 1024 * 1024 + b'"}\n')),
            ("a fork that it is not", resigned(good, key, lambda each: each["sections"][0]["gaps"].insert(2, source))),
            ("a fork of something else", resigned(fork, key, lambda each: each["sections"][0]["gaps"][0].update(through_sequence=8))),
            ("a fork of nothing", resigned(fork, key, lambda each: each["sections"][0].update(gaps=[]))),
            ("another end", resigned(good, key, self._another_end)),
            ("another hash", resigned(good, key, lambda each: each.update(last_hash="ab" * 32))),
            ("another workspace", resigned(good, key, lambda each: each.update(workspace_id="ws_x"))),
        ):  # fmt: skip
            yield f"a manifest signed with {name}", "manifest_untrue", file

    @staticmethod
    def _another_end(told: dict[str, Any]) -> None:
        told["end_sequence"] = 3
        for section in told["sections"]:
            section["source"]["through_sequence"] = 3

    @staticmethod
    def _endless(line: bytes) -> bytes:
        """The attributes say that their first text has more bytes than anybody has room for."""
        held = base64.b64decode(json.loads(line)["attributes"]["bytes"])
        return changed(line, "attributes", "bytes", to=base64.b64encode(held[:5] + b"\x02\xfe\xff\xff\xff\x0f").decode())
