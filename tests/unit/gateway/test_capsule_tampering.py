"""Attacks on an import over HTTP: each ends in a problem that has a name or in a reason, and none in custody.

The pure checks have theirs in `tests/unit/capsules/`; here is what comes before and around them: headers, lengths, spellings, sizes,
and what two real capsules of one session are made of.
"""

import copy
import json
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import get_args

import httpx
import pytest

from streams.capsules import checks
from tests.support.capsule_world import VERSION, Idle, at, resigned, target, with_content
from tests.support.capsules import HOUR, PROJECTOR, Document, signature
from tests.support.gateway import World, key, post

MIB = 1024 * 1024
JSON = {"content-type": "application/json"}
Change = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def body(idle: Idle, transfer: Document) -> bytes:
    return json.dumps(idle.import_of(transfer), separators=(",", ":"), ensure_ascii=False).encode()


def sent(idle: Idle, body: bytes, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return idle.client.post(f"{idle.path}/import", content=body, headers={**key(), **VERSION, **JSON, **given})


def verdict(response: httpx.Response) -> str:
    """The code of a problem, a reason, or `imported`."""
    answer = response.json()
    if response.status_code != 200:
        return str(answer["code"])
    return str(answer["reason"] if answer["outcome"] == "refused" else answer["outcome"])


def replaced(old: bytes, new: bytes) -> Change:
    def change(body: bytes) -> bytes:
        assert old in body, old
        return body.replace(old, new, 1)

    return change


def sequence(text: str) -> Change:
    """Another text for a number that is signed."""

    def change(body: bytes) -> bytes:
        found = f'"through_sequence":{json.loads(body)["transfer"]["capsule"]["through_sequence"]}'.encode()
        return replaced(found, b'"through_sequence":' + text.encode())(body)

    return change


AGENT, CONTENT = b'"agent_id":"agent-1"', b'"content_base64":"'

SPELLINGS: dict[str, tuple[str, Change]] = {
    "a member twice": ("request.malformed", replaced(AGENT, AGENT + b"," + AGENT)),
    "a member twice, once with an escape": ("request.malformed", replaced(AGENT, AGENT + b',"\\u0061gent_id":"agent-2"')),
    "the transfer twice": ("request.malformed", lambda body: body[:-1] + b',"transfer":{}}'),
    "content twice": ("request.malformed", replaced(CONTENT, b'"content_base64":"",' + CONTENT)),
    "content twice without a comma": ("request.malformed", replaced(CONTENT, CONTENT + b'" "')),
    "content in a list": ("request.invalid", replaced(CONTENT, b'"content_base64":[],"x":"')),
    **{
        f"a number written {text[:12]}": ("request.invalid", sequence(text))
        for text in ("1.0", "1e0", "-1", str(2**53), "9" * 5000, "1e400", "true", '"7"')
    },
    **{
        f"a number written {text[:12]}": ("request.malformed", sequence(text))
        for text in ("07", "+7", "0x7", "7_0", "NaN", "Infinity", "-Infinity", "7.", "\uff17", "\u0667")
    },
    "minus nothing": ("capsule_invalid", sequence("-0")),
    "a number without end": ("request.too_large", sequence("9" * 400_000)),
    "a look-alike of an id": ("target_unqualified", replaced(AGENT, '"agent_id":"\u0430gent-1"'.encode())),
    "a look-alike of a name": ("request.invalid", replaced(b'"agent_id"', '"\u0430gent_id"'.encode())),
    "a name with a zero width": ("request.invalid", replaced(b'"agent_id"', '"agent_id\u200b"'.encode())),
    "a nothing within an id": ("target_unqualified", replaced(b"agent-1", b"agent-1\\u0000")),
    "half a surrogate": ("request.invalid", replaced(b"agent-1", b"\\ud800")),
    "the other half": ("request.invalid", replaced(b"agent-1", b"\\udc00\\ud800")),
    "half a surrogate in a name": ("request.invalid", replaced(b'"agent_id"', b'"agent\\ud800"')),
    "half a surrogate, as bytes": ("request.malformed", replaced(b"agent-1", b"\xed\xa0\x80")),
    "half a surrogate in the content": ("capsule_invalid", replaced(CONTENT, CONTENT + b"\\ud800")),
    "bytes that are overlong": ("request.malformed", replaced(b"agent-1", b"agent\xc0\xad1")),
    "bytes that are none in the content": ("capsule_invalid", replaced(CONTENT, CONTENT + b"\xff\xfe")),
    "a line end in the content": ("request.malformed", replaced(CONTENT, CONTENT + b"\n")),
    "an escaped line end in the content": ("capsule_invalid", replaced(CONTENT, CONTENT + b"\\n")),
    "a mark in front": ("request.malformed", lambda body: b"\xef\xbb\xbf" + body),
    "another encoding": ("request.malformed", lambda body: body.decode().encode("utf-16")),
    "another encoding, without a mark": ("request.malformed", lambda body: body.decode().encode("utf-32-be")),
    "two of them": ("request.malformed", lambda body: body + body),
    "a list of one": ("request.invalid", lambda body: b"[" + body + b"]"),
    "a comment": ("request.malformed", replaced(AGENT, b"/* */" + AGENT)),
    "brackets for a number": ("request.malformed", sequence("[" * 100_000 + "]" * 100_000)),
    "brackets for the content": ("request.malformed", replaced(CONTENT, b'"content_base64":' + b"[" * 100_000 + b',"x":"')),
    "objects for a target": ("request.malformed", replaced(AGENT, b'"agent_id":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    "brackets as deep as may be": ("request.invalid", sequence("[" * 90 + "]" * 90)),
    "ten gigabytes": ("request.invalid", replaced(b'"byte_count":', b'"byte_count":%d' % (10 * 2**30))),
    "a path for the format": ("capsule_invalid", replaced(b"checkfu.session-continuation-capsule", b"../../x")),
    "a path for a digest": ("request.invalid", replaced(b'"target_digest":"sha256:', b'"target_digest":"../../')),
    "a digest in capitals": ("request.invalid", replaced(b'"target_digest":"sha256:', b'"target_digest":"SHA256:')),
    "a digest with a line end": ("request.invalid", lambda body: body.replace(b'","qualified_cap', b'\\n","qualified_cap')),
    "a session that is a path": ("request.invalid", replaced(b'"session_id":"sess_', b'"session_id":"../../')),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_readers_read_differently_ends_in_its_verdict(idle: Idle, body: bytes, name: str) -> None:
    code, change = SPELLINGS[name]
    assert change(body) != body
    assert verdict(sent(idle, change(body))) == code


def test_what_only_looks_different_is_the_same_import(idle: Idle, body: bytes) -> None:
    """White space and escapes of JSON: what is signed is what is read, and that is the same to the last field."""
    loose = json.dumps(json.loads(body), indent=3).encode()
    escaped = body.replace(AGENT, b'"\\u0061gent_id":"\\u0061gent\\u002d1"').replace(b"+", b"\\u002b").replace(b"/", b"\\/")
    assert escaped not in (body, loose)
    first = sent(idle, body).json()
    assert first["outcome"] == "imported"
    assert [sent(idle, each).json() for each in (loose, escaped)] == [first, first]


def test_a_byte_that_is_another_one_is_found(idle: Idle, body: bytes) -> None:
    """Every 61st of them: `tests/unit/capsules/test_tampering.py` has them all, without HTTP."""
    for place in range(0, len(body), 61):
        spoilt = bytearray(body)
        spoilt[place] ^= 1 << place % 7
        assert verdict(sent(idle, bytes(spoilt))) in (*get_args(checks.Reason), "request.malformed", "request.invalid"), place


def test_a_body_that_is_cut_is_malformed(idle: Idle, body: bytes) -> None:
    assert {verdict(sent(idle, body[:size])) for size in range(0, len(body), 211)} == {"request.malformed"}


class TestHeaders:
    @pytest.mark.parametrize(
        ("headers", "code"),
        [
            ([("checkfu-version", "2026-08-29"), ("checkfu-version", "2026-08-29")], "request.malformed"),
            ([("checkfu-version", "2026-08-30"), ("checkfu-version", "2026-08-29")], "request.malformed"),
            ([("checkfu-version", "2026-08-29, 2026-08-29")], "request.malformed"),
            ([("checkfu-version", "2026\u201008\u201029".encode())], "request.malformed"),
            ([("checkfu-version", "\uff122026-08-29".encode())], "request.malformed"),
            ([("checkfu-version", "2026-8-29")], "request.malformed"),
            ([("checkfu-version", "../2026-08-29")], "request.malformed"),
            ([("idempotency-key", "x" * 256)], "request.malformed"),
            ([("idempotency-key", "")], "request.malformed"),
            ([("idempotency-key", "caf\u00e9".encode())], "request.malformed"),
            ([("idempotency-key", "a\tb")], "request.malformed"),
            ([("content-type", "application/json; charset=utf-16")], "request.unsupported_media_type"),
            ([("content-type", "application/jsonp")], "request.unsupported_media_type"),
            ([("content-type", "application/js\u043en".encode())], "request.unsupported_media_type"),
            ([("content-type", "multipart/form-data; boundary=x")], "request.unsupported_media_type"),
            ([("content-encoding", "gzip")], "request.unsupported_media_type"),
            ([("content-encoding", "identity, gzip")], "request.unsupported_media_type"),
        ],
    )  # fmt: skip
    def test_one_that_is_another_than_it_has_to_be(
        self, idle: Idle, body: bytes, headers: list[tuple[str, str | bytes]], code: str
    ) -> None:
        given = {**key(), **VERSION, **JSON}
        others = [(name, value) for name, value in given.items() if name not in dict(headers)]
        raw = [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in (*others, *headers)]
        assert verdict(idle.client.post(f"{idle.path}/import", content=body, headers=raw)) == code

    @pytest.mark.parametrize(
        ("session_id", "code"),
        [
            ("..%2F..%2Fx", "resource.not_found"), ("%2e%2e/%2e%2e/x", "resource.not_found"), ("{}%0A", "request.invalid"),
            ("{}%00", "request.invalid"), ("%20{}", "request.invalid"), ("s%D0%B5ss_" + "1" * 32, "request.invalid"),
            ("sess_" + "%EF%BC%91" * 32, "request.invalid"), ("SESS_" + "1" * 32, "request.invalid"), ("%C0%AE%C0%AE", "request.invalid"),
        ],
    )  # fmt: skip
    def test_a_session_that_is_another_word_or_a_path(self, idle: Idle, body: bytes, session_id: str, code: str) -> None:
        path = f"/v1/sessions/{session_id.format(idle.session_id)}/continuation-capsules/import"
        assert verdict(idle.client.post(path, content=body, headers={**key(), **VERSION, **JSON})) == code

    @pytest.mark.parametrize(
        ("line", "status"),
        [
            ("content-length: -1", 400), ("content-length: 1e9", 400), ("content-length: 0x10", 400), ("content-length: +10", 400),
            ("content-length: 10\r\ncontent-length: 11", 400), (f"content-length: {2**64}", 400),
            (f"content-length: {10 * 2**30}", 413), ("content-length: 10\r\ntransfer-encoding: chunked", 400),
        ],
    )  # fmt: skip
    def test_a_length_that_is_none_or_too_much(self, idle: Idle, line: str, status: int) -> None:
        assert answered(idle, line, iter([b"{"])) == status

    def test_a_piece_that_claims_ten_gigabytes_is_taken_no_further_than_content_is(
        self, shared: World, idle: Idle, body: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shared.gateway, "limits", replace(shared.gateway.limits, capsule_bytes_max=MIB))
        front = body.partition(CONTENT)[0] + CONTENT
        pieces = [b"%x\r\n" % (10 * 2**30) + front, *[b"A" * 64 * 1024] * 64]
        tracemalloc.start()
        try:
            assert answered(idle, "transfer-encoding: chunked", iter(pieces)) == 413
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * MIB


def answered(idle: Idle, length: str, pieces: Iterator[bytes]) -> int:
    """The status that a request with this line about its length has, however much of its body came."""
    url = idle.client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        lines = [
            f"POST {idle.path}/import HTTP/1.1", "host: here", f"authorization: {idle.client.headers['authorization']}",
            "content-type: application/json", "checkfu-version: 2026-08-29", f"idempotency-key: {key()['idempotency-key']}", length, "", "",
        ]  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        try:
            for piece in pieces:
                connection.sendall(piece)
        except ConnectionError:
            pass  # refused before all of it was sent, which is what is asked for
        return int(connection.recv(4096).split(b" ")[1])


class TestSize:
    @pytest.mark.parametrize(
        "text", ["[" * 900_000, '{"a":' * 100_000, "[]," * 20_000, '"a",' * 20_000, ",".join(f'"{name}":0' for name in range(8_000))]
    )
    def test_a_structure_of_little_is_not_built(self, idle: Idle, body: bytes, text: str) -> None:
        tracemalloc.start()
        try:
            response = sent(idle, sequence(f"0,{text}" if ":0" in text else f"[{text}")(body))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert verdict(response) in ("request.malformed", "request.invalid")
        assert peak < 8 * MIB, peak


class TestTwoCapsulesOfOneSession:
    def test_both_are_imported_and_no_piece_of_one_within_the_other_is(self, idle: Idle, transfer: Document) -> None:
        changes: Document = {"continuation": {"native_session_id": "another"}, "compatibility_expires_at": at(4 * HOUR)}
        other = idle.created(**changes)["transfer"]
        assert [idle.outcome(idle.import_of(each)) for each in (transfer, other)] == ["imported", "imported"]
        found: dict[str, str] = {}
        for way in ((), ("capsule",), ("capsule", "artifact"), ("capsule", "artifact", "retention"), ("projection_signature",)):
            ours, theirs = within(transfer, way), within(other, way)
            for name in (name for name in ours if ours[name] != theirs[name]):
                spliced = copy.deepcopy(transfer)
                within(spliced, way)[name] = theirs[name]
                found[".".join((*way, name))] = idle.outcome(idle.import_of(spliced))
        assert len(found) >= 20
        assert set(found.values()) <= {"capsule_invalid", "source_projection_unavailable"}, found

    def test_what_the_projector_said_of_custody_is_no_statement_on_a_capsule(self, idle: Idle, transfer: Document) -> None:
        """It is signed by the same key, of the same bytes, in the same session."""
        custody = idle.imports(idle.import_of(transfer)).json()
        spliced = copy.deepcopy(transfer)
        spliced["capsule"]["artifact"]["retention"] = custody["retention"]
        assert idle.outcome(idle.import_of(spliced)) == "capsule_invalid"

    def test_a_signature_of_another_purpose_is_none(self, idle: Idle, transfer: Document) -> None:
        """The projector's key, and the digest of the target: whoever signs for retention does not qualify."""
        made = target()
        made["qualification_receipt"]["signature"] = signature(PROJECTOR, made["qualification_receipt"]["receipt_digest"])
        assert idle.outcome(idle.import_of(transfer, target=made)) == "target_unqualified"


def within(document: Document, way: tuple[str, ...]) -> Document:
    for name in way:
        document = document[name]
    return document


class TestReplays:
    def test_a_transfer_is_imported_no_more_once_its_capsule_is_revoked(self, idle: Idle) -> None:
        made = idle.created()
        body = idle.import_of(made["transfer"])
        assert idle.outcome(body) == "imported"
        post(idle.client, f"{idle.path}/{made['capsule_id']}/revoke")
        assert idle.outcome(body) == "capsule_absent"

    def test_under_a_key_that_was_used_another_content_is_another_request(self, idle: Idle, transfer: Document) -> None:
        first = idle.imports(idle.import_of(transfer), idempotency_key="replayed")
        assert first.json()["outcome"] == "imported"
        for other in (with_content(transfer, b"others"), {**transfer, "exported_at": at(0)}, {**transfer, "content_base64": ""}):
            assert verdict(idle.imports(idle.import_of(other), idempotency_key="replayed")) == "request.idempotency_mismatch"

    def test_keys_that_are_revoked_count_no_more(
        self, shared: World, idle: Idle, transfer: Document, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body, keys = idle.import_of(transfer), shared.capsule_keys.keys
        for purpose, reason in (("retention", "source_projection_unavailable"), ("qualifications", "target_unqualified")):
            with monkeypatch.context() as revoked:
                revoked.setattr(shared.capsule_keys, "keys", {name: each for name, each in keys.items() if name[0] != purpose})
                assert idle.outcome(body) == reason
        assert idle.outcome(body) == "imported"


class TestNames:
    IDS = (
        "capsule__artifact__id", "capsule__artifact__media_type", "capsule__artifact__producer_actor_id", "capsule__source_agent_id",
        "capsule__source_environment_id", "capsule__adapter_version_identifier", "capsule__artifact__retention__erasure_envelope_id",
        "capsule__secret_scrub_receipt__scrubber_version_identifier", "capsule__id", "capsule__checkpoint_id",
    )  # fmt: skip

    @pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..\\..\\x", "\u2025/x", "x" * 255, "a\nb", "\u202e", "con"])
    def test_a_path_for_an_id_is_found_where_nobody_signed_it(self, idle: Idle, transfer: Document, name: str) -> None:
        for path in self.IDS:
            spliced = copy.deepcopy(transfer)
            *way, last = path.split("__")
            within(spliced, tuple(way))[last] = name
            assert idle.outcome(idle.import_of(spliced)) == ("capsule_absent" if path == "capsule__id" else "capsule_invalid")

    def test_and_where_it_is_signed_it_names_nothing_here(self, shared: World, idle: Idle, transfer: Document) -> None:
        """Ids without a form of their own are texts: of a capsule or a checkpoint none has that name, and no file is called by one."""
        away = "../../named-by-a-stranger"
        for path, reason in (("capsule__id", "capsule_absent"), ("capsule__checkpoint_id", "capsule_unavailable")):
            assert idle.outcome(idle.import_of(resigned(transfer, **{path: away}))) == reason
        made = resigned(transfer, **{"capsule__artifact__id": away, "capsule__artifact__retention__artifact_id": away})
        custody = idle.imports(idle.import_of(made)).json()
        assert custody["retention"]["artifact_id"] == custody["import_id"]
        root = shared.settings.data_dir.parent
        assert [name for name in root.rglob("*") if name.name == "named-by-a-stranger"] == []
