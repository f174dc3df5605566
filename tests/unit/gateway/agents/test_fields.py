"""Each rule of a body and its message, to the letter: the table of page 06, 1.5, and the order of 1.3."""

import hashlib
import itertools
import json
from typing import Any, get_args

import pytest

import session_streams.agent_checkpoints
from connectors.edge.agents import NewState
from connectors.gateway.agents import describing
from connectors.gateway.agents.body import read_object
from connectors.gateway.agents.failures import Failure
from connectors.gateway.agents.operations import new_state
from streams.agents.core import KINDS

AGENT = "agent_" + "a" * 32
GOOD = '"subject_id":"user_rama","kind":"task_state","state":{"step":3},"ttl_seconds":3600'


def saved(fields: str, if_match: str | None = None) -> NewState:
    return new_state(read_object(f"{{{fields}}}".encode()), AGENT, if_match)


def message(fields: str, if_match: str | None = None) -> str:
    """Later members win, so a test says only what is wrong."""
    with pytest.raises(Failure) as refused:
        saved(f"{GOOD},{fields}" if fields else GOOD, if_match)
    assert (refused.value.status, refused.value.code) == (400, "VALIDATION_ERROR")
    return refused.value.message


def message_without(name: str) -> str:
    body = {key: value for key, value in json.loads(f"{{{GOOD}}}").items() if key != name}
    with pytest.raises(Failure) as refused:
        new_state(body, AGENT)
    return refused.value.message


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "Request body is required."),
        (b" \n\t ", "Request body is required."),
        ("\u00a0\ufeff\u2029".encode(), "Request body is required."),
        (b"\xef\xbb\xbf", "Request body is required."),
        (b"\x85", "Request body must be valid JSON."),
        (b"{", "Request body must be valid JSON."),
        (b'{"a":NaN}', "Request body must be valid JSON."),
        (b"null x", "Request body must be valid JSON."),
        ('{"a":1}'.encode("utf-16"), "Request body must be valid JSON."),
        (b"null", "Request body must be a JSON object."),
        (b"[]", "Request body must be a JSON object."),
        (b'"text"', "Request body must be a JSON object."),
        (b"7", "Request body must be a JSON object."),
        (b"[" * 64 + b"]" * 64, "Request body must be a JSON object."),
        (b"[" * 65 + b"]" * 65, "Request body exceeds maximum JSON depth of 64."),
        (b'{"state":' + b"[" * 64 + b"]" * 64 + b"}", "Request body exceeds maximum JSON depth of 64."),
        (b'{"other":' + b"[" * 64 + b"]" * 64 + b"}", "Request body exceeds maximum JSON depth of 64."),
        (b'{"state":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "Request body exceeds maximum JSON depth of 64."),
        (b'{"state":' + b"[" * 200_000 + b"]" * 199_999 + b"}", "Request body must be valid JSON."),
    ],
    ids=itertools.count(),
)
def test_what_is_no_object_is_told_so(raw: bytes, told: str) -> None:
    with pytest.raises(Failure) as refused:
        read_object(raw)
    assert (refused.value.status, refused.value.code, refused.value.message) == (400, "VALIDATION_ERROR", told)


def test_a_state_may_hold_63_arrays_in_each_other() -> None:
    nested = "[" * 63 + "]" * 63
    assert saved(f'{GOOD},"state":{nested}').state == nested


STRINGS = [
    ("null", "{must}"),
    ("7", "{must}"),
    ("1.5", "{must}"),
    ("true", "{must}"),
    ("[]", "{must}"),
    ("{}", "{must}"),
    ('""', "{blank}"),
    ('" \\t\\n"', "{blank}"),
    ('"\u00a0\ufeff\u3000"', "{blank}"),
    ('"\\ufeff"', "{blank}"),
    ('"' + "x" * 201 + '"', "exceeds {limit} characters."),
    ('"' + "😀" * 101 + '"', "exceeds {limit} characters."),
    ('"' + "\\u0000" * 201 + '"', "exceeds {limit} characters."),
    ('"' + "\\ud800" * 201 + '"', "exceeds {limit} characters."),
    ('"a\\ud800"', "must contain well-formed Unicode."),
    ('"\\udc00\\ud800"', "must contain well-formed Unicode."),
    ('"\\u0000\\ud800"', "must contain well-formed Unicode."),
    *[
        (f'"a\\u{code:04x}b"', "contains an unsafe control character.")
        for code in (0x00, 0x08, 0x0B, 0x0C, 0x0D, 0x1F, 0x7F, 0x80, 0x85, 0x9F, 0x61C, 0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069)
    ],
]
"""JSON text of a value of a string field, and what is told of it."""


@pytest.mark.parametrize(("value", "told"), STRINGS, ids=itertools.count())
@pytest.mark.parametrize(("name", "limit"), [("subject_id", 200), ("agent_id", 200), ("run_id", 200), ("kind", 120)])
def test_each_rule_of_a_string_has_its_message(name: str, limit: int, value: str, told: str) -> None:
    present = " when present" if name in ("agent_id", "run_id") else ""
    if value == "null" and present:
        saved(f'{GOOD},"{name}":null')
        return
    words = {"must": f"must be a string{present}.", "blank": f"must be a non-empty string{present}.", "limit": limit}
    assert message(f'"{name}":{value}') == f'Field "{name}" {told.format(**words)}'


def test_a_kind_of_121_characters_is_too_long_before_it_is_none_of_the_four() -> None:
    assert message(f'"kind":"{"k" * 121}"') == 'Field "kind" exceeds 120 characters.'
    assert message(f'"kind":"{"k" * 120}"') == 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'


@pytest.mark.parametrize("name", ["subject_id", "kind", "state", "ttl_seconds"])
def test_what_is_required_is_missed(name: str) -> None:
    assert message_without(name) == f'Field "{name}" is required.'


@pytest.mark.parametrize(
    "text",
    ["user_rama", "a/b/../c", " not trimmed ", "a b", "😀" * 100, "tab\tand\nline", "zero\u200bwidth", "x" * 200, "null",
     "\u0300", "\u200c\u2028\ufffd"],
)  # fmt: skip
def test_a_subject_has_no_pattern_and_is_kept_as_given(text: str) -> None:
    for name in ("subject_id", "run_id"):
        assert getattr(saved(f'{GOOD},"{name}":{json.dumps(text)}'), name) == text


@pytest.mark.parametrize("kind", ["Task_state", "task_state ", "state", "task-state", "__proto__"])
def test_a_kind_is_one_of_four_exactly(kind: str) -> None:
    assert message(f'"kind":"{kind}"') == 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'


@pytest.mark.parametrize("kind", ["task_state", "conversation", "workflow", "cursor"])
def test_each_of_the_four_kinds_is_taken(kind: str) -> None:
    assert saved(f'{GOOD},"kind":"{kind}"').kind == kind


def test_the_four_kinds_are_the_same_for_service_document_and_client() -> None:
    assert KINDS == get_args(describing.Kind) == get_args(session_streams.agent_checkpoints.Kind)


@pytest.mark.parametrize(
    ("given", "kept"), [("false", "false"), ("0", "0"), ('""', '""'), ("{}", "{}"), ("[]", "[]"), ("1e400", "null"), ("-0", "0")]
)
def test_any_state_but_null_is_taken(given: str, kept: str) -> None:
    assert saved(f'{GOOD},"state":{given}').state == kept


def test_null_is_no_state() -> None:
    assert message('"state":null') == 'Field "state" is required.'


@pytest.mark.parametrize(
    ("fits", "too_large"),
    [
        ('"' + "x" * 63_998 + '"', '"' + "x" * 63_999 + '"'),
        ('"' + "é" * 31_999 + '"', '"' + "é" * 32_000 + '"'),
        ('"' + "😀" * 15_999 + '"', '"' + "😀" * 16_000 + '"'),
        (" [" + " " * 70_000 + '"' + "x" * 63_996 + '" ]', '["' + "x" * 63_997 + '"]'),
        ('"' + "\\u0001" * 10_666 + '"', '"' + "\\u0001" * 10_667 + '"'),
        ('"' + "\\ud800" * 10_666 + '"', '"' + "\\ud800" * 10_667 + '"'),
        ('"' + "\\u0041" * 63_998 + '"', '"' + "\\u0041" * 63_999 + '"'),
    ],
    ids=["ascii", "two bytes", "four bytes", "space around", "controls", "surrogates", "escapes"],
)
def test_a_state_has_at_most_64000_bytes_as_it_is_kept(fits: str, too_large: str) -> None:
    assert len(saved(f'{GOOD},"state":{fits}').state.encode()) <= 64_000
    assert message(f'"state":{too_large}') == "Checkpoint state exceeds 64000 bytes."


@pytest.mark.parametrize("value", ["null", "true", '"600"', "60.5", "[]", "{}", "1e400", "-1e400", "3600.0000001", "1e-7"])
def test_a_ttl_is_an_integer(value: str) -> None:
    assert message(f'"ttl_seconds":{value}') == 'Field "ttl_seconds" must be an integer.'


@pytest.mark.parametrize(
    "value", ["0", "-0", "59", "-60", "2592001", "1e300", "1e21", "-9007199254740993", "123456789012345678901234567890"]
)
def test_a_ttl_is_from_a_minute_to_thirty_days(value: str) -> None:
    assert message(f'"ttl_seconds":{value}') == 'Field "ttl_seconds" must be between 60 and 2592000.'


@pytest.mark.parametrize(
    ("value", "seconds"), [("60", 60), ("2592000", 2_592_000), ("600.0", 600), ("6e2", 600), ("0.6e3", 600), ("60.00000000000000001", 60)]
)
def test_a_ttl_may_be_written_as_any_integral_number(value: str, seconds: int) -> None:
    assert saved(f'{GOOD},"ttl_seconds":{value}').ttl_seconds == seconds


@pytest.mark.parametrize("agent_id", ["agent_" + "b" * 32, "owner", AGENT + " ", AGENT.upper()])
def test_another_agent_is_not_found(agent_id: str) -> None:
    with pytest.raises(Failure) as refused:
        saved(f'{GOOD},"agent_id":"{agent_id}"')
    assert (refused.value.status, refused.value.code, refused.value.message) == (404, "NOT_FOUND", "Resource was not found.")


def test_the_callers_own_agent_may_be_named() -> None:
    assert saved(f'{GOOD},"agent_id":"{AGENT}"') == saved(f'{GOOD},"agent_id":null') == saved(GOOD)


HASH = hashlib.sha256(b"1").hexdigest()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("7", 'Field "expected_state_hash" must be a string when present.'),
        ('""', 'Field "expected_state_hash" must be a non-empty string when present.'),
        (f'"{HASH.upper()}"', 'Field "expected_state_hash" must be 64 lowercase hexadecimal digits.'),
        (f'"{HASH[1:]}"', 'Field "expected_state_hash" must be 64 lowercase hexadecimal digits.'),
        (f'"{HASH}\\n"', 'Field "expected_state_hash" must be 64 lowercase hexadecimal digits.'),
    ],
)
def test_an_expected_hash_is_a_hash(value: str, told: str) -> None:
    assert message(f'"expected_state_hash":{value}') == told


@pytest.mark.parametrize("header", [HASH, f'"{HASH}"'])
def test_an_expected_hash_may_stand_in_if_match(header: str) -> None:
    assert saved(GOOD, header).expected_state_hash == HASH
    assert saved(f'{GOOD},"expected_state_hash":"{HASH}"', header).expected_state_hash == HASH
    assert saved(GOOD).expected_state_hash is None


@pytest.mark.parametrize("header", ["", "*", '"', '""', f'W/"{HASH}"', f'"{HASH}", "{HASH}"', HASH[1:], f'"{HASH}'])
def test_an_if_match_that_names_no_single_hash_is_refused_rather_than_ignored(header: str) -> None:
    assert message("", header) == 'Header "If-Match" must be one state_hash.'


def test_two_different_expectations_are_refused() -> None:
    told = message(f'"expected_state_hash":"{"0" * 64}"', HASH)
    assert told == 'Field "expected_state_hash" and header "If-Match" must be the same.'


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"subject_id": 7}, 'Field "subject_id" must be a string.'),
    ({"agent_id": 7}, 'Field "agent_id" must be a string when present.'),
    ({"agent_id": "agent_other"}, "Resource was not found."),
    ({"run_id": ""}, 'Field "run_id" must be a non-empty string when present.'),
    ({"kind": 7}, 'Field "kind" must be a string.'),
    ({"kind": "other"}, 'Field "kind" must be one of: task_state, conversation, workflow, cursor.'),
    ({"state": None}, 'Field "state" is required.'),
    ({"state": "x" * 64_000}, "Checkpoint state exceeds 64000 bytes."),
    ({"ttl_seconds": "60"}, 'Field "ttl_seconds" must be an integer.'),
    ({"ttl_seconds": 59}, 'Field "ttl_seconds" must be between 60 and 2592000.'),
    ({"expected_state_hash": "no"}, 'Field "expected_state_hash" must be 64 lowercase hexadecimal digits.'),
]
"""In the order in which they are looked at."""


PAIRS = [(first, second) for first, second in itertools.combinations(WRONG, 2) if first[0].keys() != second[0].keys()]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=itertools.count())
def test_of_two_wrong_fields_the_first_in_order_is_told(first: tuple[dict[str, Any], str], second: tuple[dict[str, Any], str]) -> None:
    with pytest.raises(Failure) as refused:
        new_state({**json.loads(f"{{{GOOD}}}"), **second[0], **first[0]}, AGENT)
    assert refused.value.message == first[1]


def test_unknown_fields_are_ignored_and_of_a_repeated_one_the_last_counts() -> None:
    found = saved(f'"kind":7,{GOOD},"other":[1],"subject_id":"a","subject_id":"b","__proto__":{{"kind":1}}')
    assert (found.subject_id, found.kind) == ("b", "task_state")


def test_the_hash_is_of_the_canonical_text_and_that_of_the_seed_is_the_seeds() -> None:
    found = saved(f'{GOOD},"state": {{ "step": 3, "of": 7, "pending": ["rollback smoke"] }}')
    assert found.state == '{"step":3,"of":7,"pending":["rollback smoke"]}'
    assert found.state_hash == "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"
    other = saved(f'{GOOD},"state":{{"of":7,"step":3,"pending":["rollback smoke"]}}')
    assert other.state_hash != found.state_hash
