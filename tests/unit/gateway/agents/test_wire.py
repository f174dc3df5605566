"""Routes, credentials, envelopes and the order of checks, as they stand on the wire: the tables of page 06, 1.1 to 1.4."""

import http.client
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.gateway.guards import RateLimit
from streams.errors import BrokerUnavailable, KeyringUnavailable, OutcomeUnknown, Overloaded, StreamsError
from tests.support.agent_requests import Told, ask, is_enveloped
from tests.support.gateway import World
from tests.support.waiting import eventually

UNKNOWN = (404, "NOT_FOUND", "Unknown endpoint.")
ABSENT = (404, "NOT_FOUND", "Resource was not found.")
NOT_KNOWN = (401, "UNAUTHENTICATED", "Credential is missing or invalid.")
UNAVAILABLE = (503, "UNAVAILABLE", "Storage is unavailable.")
TOO_LARGE = (413, "PAYLOAD_TOO_LARGE", "Request body is too large.")
ID = "ckpt_" + "0" * 12 + "4" + "0" * 3 + "8" + "0" * 15
READ, WRITE = "agent-checkpoints:read", "agent-checkpoints:write"


def body(**changed: Any) -> bytes:
    given = {"subject_id": "user_rama", "kind": "task_state", "state": {"step": 3}, "ttl_seconds": 3600, **changed}
    return json.dumps(given).encode()


@pytest.fixture(scope="module")
def secret(shared: World) -> str:
    return shared.secret()


# -- routes -----------------------------------------------------------------------------------------------------------

COLLECTION, ITEM, HISTORY = "GET, POST", "DELETE, GET", "GET"


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        *[(target, COLLECTION) for target in ("/v1/checkpoints", "/v1/checkpoints/", "//v1///checkpoints//", "/v1/checkpoints?a=b")],
        *[(target, ITEM) for target in (f"/v1/checkpoints/{ID}", f"//v1//checkpoints//{ID}//")],
        *[(target, ITEM) for target in ("/v1/checkpoints/%zz", "/v1/checkpoints/a%2Fb")],
        (f"/v1/checkpoints/{ID}/history", HISTORY),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "POST", "DELETE", "GET"])
def test_a_known_path_tells_its_methods_before_any_key_is_looked_at(shared: World, target: str, allowed: str, method: str) -> None:
    told = ask(shared, method, target)
    if method in allowed.split(", "):
        assert told.error == NOT_KNOWN
        return
    assert told.status == 405
    assert "allow" not in told.headers
    assert not [name for name in told.headers if name.startswith("access-control")]
    assert told.headers["x-request-id"].startswith("req_")
    if method != "HEAD":
        assert told.error == (405, "METHOD_NOT_ALLOWED", f"Allowed methods: {allowed}.")
        assert is_enveloped(told)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/checkpoints/a/b", "/v1/checkpoints/a/history/c", "/v1/checkpoints/a/History", "/v1/context", "/v1/context/other",
        "/v1/context/compile/x",
        "/mcp/other", "/v1/principal/other", "//mcp//x",
    ],
)  # fmt: skip
def test_an_unknown_path_under_theirs_is_told_in_their_words_before_any_key_is_looked_at(shared: World, target: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        told = ask(shared, method, target)
        assert told.error == UNKNOWN
        assert is_enveloped(told)


@pytest.mark.parametrize(
    "target", ["/v1/Checkpoints", "/V1/checkpoints", "/v1", "/", "/v2/checkpoints", "/v1/checkpointsx", "/v1/observations"]
)
def test_elsewhere_a_problem_is_told_as_before(shared: World, target: str) -> None:
    told = ask(shared, "GET", target)
    assert (told.status, told.headers["content-type"]) == (404, "application/problem+json")
    assert told.body["code"] == "resource.not_found"
    assert "x-request-id" not in told.headers


def test_snapshots_of_sessions_keep_their_own_routes(shared: World, secret: str) -> None:
    told = ask(shared, "GET", "/v1/sessions/sess_" + "0" * 32 + "/checkpoints", secret)
    assert told.body["code"] == "resource.not_found"


@pytest.mark.parametrize("name", ["%zz", "%", "%4", "%ff", "%c3%28", "x%2", "..%", "%E0%80%80", "a%2Fb", "%00", "ckpt_"])
def test_an_id_that_cannot_be_decoded_or_names_nothing_is_not_found(shared: World, secret: str, name: str) -> None:
    for method in ("GET", "DELETE"):
        assert ask(shared, method, f"/v1/checkpoints/{name}", secret).error == ABSENT
    assert ask(shared, "GET", f"/v1/checkpoints/{name}/history", secret).error == ABSENT


def test_an_id_may_be_written_with_escapes(shared: World, secret: str) -> None:
    saved = ask(shared, "POST", "/v1/checkpoints", secret, body(subject_id="escaped")).data["checkpoint_id"]
    escaped = "".join(f"%{ord(each):02x}" for each in saved)
    assert ask(shared, "GET", f"/v1/checkpoints/{escaped}", secret).data["checkpoint_id"] == saved


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    ["Bearer {}", "bearer {}", "BEARER {}", "bEaReR {}", "Bearer    {}", "Bearer {}   ", "  Bearer {}", "Bearer titen_{}"],
)
def test_a_key_is_taken_however_its_scheme_is_written(shared: World, secret: str, header: str) -> None:
    presented = header.format(secret).replace("titen_sks_", "titen_sk_")
    assert ask(shared, "GET", f"/v1/checkpoints/{ID}", authorization=presented).error == ABSENT


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer\t{}", "Bearer \t{}", "Bearer{}", "Basic {}", "{}", "Bearer {} x", "Bearer {0} {0}", "Bearer,{}",
     "Bearer x{}", "Bearer titen_{}", "Bearer titen_sk_", "Bearer sks_", "Bearer {}x", "Token {}"],
)  # fmt: skip
def test_everything_wrong_with_a_credential_is_one_401(shared: World, secret: str, header: str) -> None:
    told = ask(shared, "GET", f"/v1/checkpoints/{ID}", authorization=header.format(secret))
    assert told.error == NOT_KNOWN
    assert is_enveloped(told)


def test_no_other_header_carries_a_key(shared: World, secret: str) -> None:
    for name in ("x_api_key", "api_key", "cookie", "proxy_authorization", "x_authorization"):
        assert ask(shared, "GET", f"/v1/checkpoints/{ID}", **{name: f"Bearer {secret}"}).error == NOT_KNOWN
    assert ask(shared, "GET", f"/v1/checkpoints/{ID}?authorization=Bearer%20{secret}").error == NOT_KNOWN


def test_a_key_is_looked_at_again_at_every_request(shared: World) -> None:
    now = shared.gateway.clock()
    early, late = shared.secret(not_before=now + 10**12), shared.secret(expires_at=now - 1)
    key, secret = shared.keys.create("ws_" + "a" * 32, [READ])
    assert ask(shared, "GET", f"/v1/checkpoints/{ID}", secret).error == ABSENT
    shared.rows = {name: value for name, value in shared.rows.items() if key.key_id not in name.decode()}
    for wrong in (early, late, secret):
        assert ask(shared, "GET", f"/v1/checkpoints/{ID}", wrong).error == NOT_KNOWN


@pytest.mark.parametrize(
    ("method", "target", "scope"),
    [
        ("POST", "/v1/checkpoints", "write"),
        ("GET", "/v1/checkpoints", "read"),
        ("GET", f"/v1/checkpoints/{ID}", "read"),
        ("DELETE", f"/v1/checkpoints/{ID}", "write"),
        ("GET", f"/v1/checkpoints/{ID}/history", "read"),
    ],
)
def test_a_scope_that_is_missing_is_named_as_their_clients_know_it(shared: World, method: str, target: str, scope: str) -> None:
    others = sorted({READ, WRITE, "checkpoints:read", "checkpoints:write", "mcp:call"} - {f"agent-checkpoints:{scope}"})
    told = ask(shared, method, target, shared.secret(*others), b"{")
    assert told.error == (403, "FORBIDDEN", f'Missing required scope "checkpoints:{scope}".')
    assert is_enveloped(told)
    assert ask(shared, method, target, shared.secret(f"agent-checkpoints:{scope}"), b"{").status in (400, 404)
    assert ask(shared, method, target, shared.secret("admin"), b"{").status in (400, 404)


# -- the order of checks ----------------------------------------------------------------------------------------------

BROKEN = ["stale", "key", "scope", "large", "body"]
TOLD_FIRST = {
    "stale": UNAVAILABLE,
    "key": NOT_KNOWN,
    "scope": (403, "FORBIDDEN", 'Missing required scope "checkpoints:write".'),
    "large": TOO_LARGE,
    "body": (400, "VALIDATION_ERROR", "Request body must be valid JSON."),
}


@pytest.mark.parametrize(
    "broken", [set(each) for size in (1, 2, 3, 5) for each in itertools.combinations(BROKEN, size)], ids=itertools.count()
)
def test_of_several_things_that_are_wrong_the_first_is_told(shared: World, broken: set[str]) -> None:
    secret = "sks_" + "x" * 43 if "key" in broken else shared.secret(READ) if "scope" in broken else shared.secret()
    content = b"{" if "body" in broken else body(subject_id="order")
    shared.stale_keys = "stale" in broken
    try:
        length = 1_048_577 if "large" in broken else len(content)
        told = declared(shared, secret, length, content)
    finally:
        shared.stale_keys = False
    assert told.error == next(TOLD_FIRST[each] for each in BROKEN if each in broken)
    assert is_enveloped(told)


def declared(world: World, secret: str, length: int, sent: bytes) -> Told:
    """The answer to a request that says how long its body is, and sends only a part of it."""
    connection = http.client.HTTPConnection("127.0.0.1", int(world.url.rsplit(":", 1)[1]), timeout=20)
    try:
        connection.putrequest("POST", "/v1/checkpoints")
        for name, value in (("authorization", f"Bearer {secret}"), ("content-length", str(length))):
            connection.putheader(name, value)
        connection.endheaders(sent)
        answer = connection.getresponse()
        raw = answer.read()
        return Told(answer.status, {name.lower(): value for name, value in answer.getheaders()}, json.loads(raw), raw)
    finally:
        connection.close()


def test_a_body_of_a_mebibyte_passes_and_one_byte_more_does_not(shared: World, secret: str) -> None:
    good = body(subject_id="large")
    whole = good[:-1] + b" " * (1_048_576 - len(good)) + b"}"
    assert ask(shared, "POST", "/v1/checkpoints", secret, whole).status in (200, 201)
    told = declared(shared, secret, 1_048_577, b"")
    assert told.error == TOO_LARGE
    assert told.headers["connection"] == "close", "the rest of the body is not read"


def test_a_body_whose_length_is_not_declared_is_counted_as_it_comes(shared: World, secret: str) -> None:
    head = f"POST /v1/checkpoints HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(shared.url.rsplit(":", 1)[1])), timeout=20) as connection:
        connection.sendall(head.encode())
        for _ in range(16):
            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        connection.sendall(b"1\r\n \r\n")
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"Request body is too large."' in answer


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "x"])
def test_media_types_are_ignored(shared: World, secret: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content_type": content_type}
    told = ask(shared, "POST", "/v1/checkpoints", secret, body(subject_id="types"), accept="text/html", **headers)
    assert told.status in (200, 201)
    assert is_enveloped(told)


def test_the_id_of_a_request_is_never_the_callers(shared: World, secret: str) -> None:
    told = ask(shared, "POST", "/v1/checkpoints", secret, body(), x_request_id="req_mine")
    other = ask(shared, "POST", "/v1/checkpoints", secret, body(), x_request_id="req_mine")
    assert is_enveloped(told)
    assert "req_mine" not in (told.headers["x-request-id"], other.headers["x-request-id"])
    assert told.headers["x-request-id"] != other.headers["x-request-id"]


# -- what is not the caller's fault -----------------------------------------------------------------------------------


@pytest.fixture
def failing(shared: World) -> Iterator[World]:
    yield shared
    shared.agents.failing = None


@pytest.mark.parametrize(
    "error", [BrokerUnavailable("away"), KeyringUnavailable("away"), OutcomeUnknown("late"), Overloaded("many")], ids=str
)
def test_storage_that_cannot_answer_is_503_and_says_when_to_come_back(failing: World, secret: str, error: StreamsError) -> None:
    failing.agents.failing = error
    for method, target in (
        ("POST", "/v1/checkpoints"),
        ("GET", "/v1/checkpoints?subject_id=a&kind=cursor"),
        ("DELETE", f"/v1/checkpoints/{ID}"),
    ):
        told = ask(failing, method, target, secret, body())
        assert told.error == UNAVAILABLE
        assert is_enveloped(told)
        assert int(told.headers["retry-after"]) >= 1


def test_what_nobody_foresaw_is_500_and_tells_nothing(failing: World, secret: str, capfd: pytest.CaptureFixture[str]) -> None:
    failing.agents.failing = ZeroDivisionError("user_rama")
    told = ask(failing, "POST", "/v1/checkpoints", secret, body())
    assert told.error == (500, "INTERNAL", "Request could not be completed.")
    assert is_enveloped(told)
    logged = capfd.readouterr()
    assert "user_rama" not in logged.out + logged.err


def test_too_many_changes_at_once_are_503_before_the_body_is_read(shared: World, secret: str) -> None:
    changes = shared.gateway.agent_changes
    taken = changes.limit - changes.taken
    changes.take(taken)
    try:
        told = ask(shared, "POST", "/v1/checkpoints", secret, b"{")
        read = ask(shared, "GET", f"/v1/checkpoints/{ID}", secret)
        session = ask(shared, "POST", "/v1/sessions", secret, b"{}", content_type="application/json", idempotency_key="one")
    finally:
        changes.give_back(taken)
    assert told.error == UNAVAILABLE
    assert "retry-after" in told.headers
    assert read.error == ABSENT
    assert session.status == 201, "sessions have room of their own"


def test_changes_of_sessions_take_no_room_from_agents(shared: World, secret: str) -> None:
    changes = shared.gateway.changes
    taken = changes.limit - changes.taken
    changes.take(taken)
    try:
        told = ask(shared, "POST", "/v1/checkpoints", secret, body(subject_id="room"))
    finally:
        changes.give_back(taken)
    assert told.status == 201


@pytest.mark.parametrize(("target", "kind"), [("/v1/checkpoints", "agent_changes"), ("/mcp", "agent_reads")])
def test_who_is_slow_to_send_a_body_holds_no_place_until_it_is_there(shared: World, target: str, kind: str) -> None:
    secret, budget = shared.secret("agent-checkpoints:write", "mcp:call"), getattr(shared.gateway, kind)
    slow, quick = (http.client.HTTPConnection("127.0.0.1", int(shared.url.rsplit(":", 1)[1]), timeout=20) for _ in range(2))
    given = body(subject_id="slow") if kind == "agent_changes" else b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    limit, budget.limit = budget.limit, 1
    try:
        slow.putrequest("POST", target)
        slow.putheader("authorization", f"Bearer {secret}")
        slow.putheader("content-length", str(len(given)))
        slow.endheaders(given[:10])
        eventually(lambda: (shared.gateway.bodies.taken, budget.taken) == (10, 0))
        for _ in range(5):
            quick.request("POST", target, body=given, headers={"authorization": f"Bearer {secret}"})
            answer = quick.getresponse()
            assert answer.status in (200, 201), answer.read()
            answer.read()
        slow.send(given[10:])
        assert slow.getresponse().status == 200
    finally:
        budget.limit = limit
        slow.close()
        quick.close()
    assert budget.taken == 0


def test_a_key_that_asks_too_much_is_told_when_to_come_back(shared: World, secret: str) -> None:
    usual, shared.gateway.rate = shared.gateway.rate, RateLimit(0.01, 1)
    try:
        assert ask(shared, "GET", f"/v1/checkpoints/{ID}", secret).error == ABSENT
        told = ask(shared, "GET", f"/v1/checkpoints/{ID}", secret)
        other = ask(shared, "GET", f"/v1/checkpoints/{ID}", shared.secret())
    finally:
        shared.gateway.rate = usual
    assert told.error == (429, "RATE_LIMITED", "Too many requests.")
    assert is_enveloped(told)
    assert 90 <= int(told.headers["retry-after"]) <= 101
    assert other.error == ABSENT


def test_after_each_refusal_the_connection_serves_the_next_request(shared: World, secret: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(shared.url.rsplit(":", 1)[1]), timeout=20)
    try:
        for method, target in (
            ("POST", "/v1/checkpoints"),
            ("POST", "/v1/checkpoints/x/y"),
            ("PUT", "/v1/checkpoints"),
            ("DELETE", f"/v1/checkpoints/{ID}"),
        ):
            connection.request(method, target, body=b"x" * 100_000, headers={"authorization": f"Bearer {secret}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (400, 404, 405)
    finally:
        connection.close()


def test_healthz_stays_as_it_is(shared: World) -> None:
    assert ask(shared, "GET", "/healthz").body == {"status": "alive"}
