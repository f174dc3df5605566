"""What the scrub finds, however JSON spells it, and what it does not vouch for."""

import json

import pytest

from connectors.edge.scrubbing import LAYERS_MAX, SCANNED_BYTES_MAX, TOO_DEEP, TOO_LARGE, found_in

OWN = "sks_" + "aB3" * 14 + "x"
SECRETS = {
    "session_streams_key": OWN,
    "anthropic_key": "sk-ant-" + "a1B2" * 8,
    "bearer": "bearer " + "a1B2" * 8,
    "aws_access_key": "AKIAIOSFODNN7EXAMPLQ",
    "github_token": "ghp_" + "a1B2c3" * 6,
    "json_web_token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "private_key": "-----BEGIN RSA PRIVATE KEY-----",
    "basic_auth_credentials": "https://user:hunter2pass@example.com/",
    "secret_keyword": 'password = "hunter2hunter2x"',
}
ESCAPED = [*map(chr, range(0x20)), '"', "\\", "/", "\x7f", "\u00e9", "\u2028", "\U0001f511"]
"""What JSON escapes: always, mostly, or where its writer likes to."""


def cursor(text: str) -> bytes:
    return json.dumps({"native_session_id": "ok", "thread_cursor": text}).encode()


@pytest.mark.parametrize("kind", SECRETS)
def test_a_credential_is_found_behind_whatever_is_escaped(kind: str) -> None:
    hidden = [before for before in ESCAPED if found_in(cursor(f"cursor{before}{SECRETS[kind]}")) != kind]
    assert hidden == []


@pytest.mark.parametrize("kind", SECRETS)
def test_a_credential_is_found_in_json_within_a_text(kind: str) -> None:
    text = f"\t{SECRETS[kind]}"
    for _ in range(LAYERS_MAX):
        assert found_in(cursor(text)) == kind
        text = json.dumps({"inner": text})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(cursor('{"password": "hunter2hunter2x"}'), id="a member of a text"),
        pytest.param(cursor('{"a": "{\\"password\\": \\"hunter2hunter2x\\"}"}'), id="a member of a text of a text"),
        pytest.param(cursor("password: hunter2hunter2x"), id="without quotes"),
        pytest.param(b'{"thread_cursor":"\\u0073ks_' + OWN[4:].encode() + b'"}', id="letters written as escapes"),
        pytest.param(b'{"a":"\\t' + OWN.encode() + b'","a":"ok"}', id="a member that another one hides"),
        pytest.param(json.dumps([[{"a": ["\t" + OWN]}]]).encode(), id="deep"),
        pytest.param(json.dumps({"\t" + OWN: 1}).encode(), id="the name of a member"),
        pytest.param(b"[" * 20_000 + b'"\\t' + OWN.encode(), id="no JSON"),
        pytest.param(OWN.encode(), id="nothing but it"),
    ],
)
def test_no_spelling_hides_a_credential(content: bytes) -> None:
    assert found_in(content) is not None


@pytest.mark.parametrize(
    "text", ["message-17", "C:\\temp\\new\\tasks", "tasks_" + OWN[4:], "0b1c7a6e-native-session", "line\nline\ttab", "\ud800"]
)
def test_what_a_harness_goes_on_by_is_no_credential(text: str) -> None:
    assert found_in(cursor(text)) is None


def test_what_is_too_large_or_escaped_too_often_is_not_vouched_for() -> None:
    assert found_in(b" " * SCANNED_BYTES_MAX) is None
    assert found_in(b" " * (SCANNED_BYTES_MAX + 1)) == TOO_LARGE
    assert found_in(cursor("\\" * 2**LAYERS_MAX)) is None
    assert found_in(cursor("\\" * 2 ** (LAYERS_MAX + 1))) == TOO_DEEP
