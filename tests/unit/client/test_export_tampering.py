"""Whatever is done to an export ends in a verdict that has a name, and takes no more memory than its longest line.

What is moved, left out or changed in one place is in `test_export.py`; here is what needs more thought: files that readers read
differently, sizes that are claimed, and each byte of a small one.
"""

import base64
import json
import os
import tempfile
import tracemalloc
import unicodedata
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from connectors.gateway.limits import GatewayLimits
from session_streams.export import Verdict, evidence, form, read, verify
from session_streams.export.__main__ import main
from streams.session.events import MessageAttributes, SessionAttributes
from tests.support.examples import made_up_id
from tests.support.exports import History, changed, spelled

MIB = 1024 * 1024
THREAD = made_up_id("sthr")
TEXT = '{"name":"caf\u00e9","n":1}'


def told(session_id: str = made_up_id("sess"), *texts: str) -> History:
    history = History(session_id).tell("session.created", SessionAttributes(origin="live"))
    for text in texts or (TEXT, "2"):
        history.tell(attributes=MessageAttributes(role="user", input_tokens=3), text=text, thread_id=THREAD)
    return history


LINES = told().lines()
OTHER = told(made_up_id("sess", "other")).lines()
HEADER, CREATED, FIRST, SECOND, TRAILER = LINES


def with_line(line: bytes) -> list[bytes]:
    """The export with another line in the place of its first message."""
    return [HEADER, CREATED, line, SECOND, TRAILER]


def replaced(line: bytes, old: str, new: str) -> bytes:
    assert old.encode() in line
    return line.replace(old.encode(), new.encode(), 1)


def of(name: str, value: str) -> list[bytes]:
    """The export whose first message has another text in the place of a member's value."""
    given = json.dumps(json.loads(FIRST)[name], separators=(",", ":"))
    return with_line(replaced(FIRST, f'"{name}":{given}', f'"{name}":{value}'))


def in_header(name: str, value: str) -> list[bytes]:
    given = json.dumps(json.loads(HEADER)[name], separators=(",", ":"))
    return [replaced(HEADER, f'"{name}":{given}', f'"{name}":{value}'), *LINES[1:]]


def in_trailer(name: str, value: str) -> list[bytes]:
    given = json.dumps(json.loads(TRAILER)[name], separators=(",", ":"))
    return [*LINES[:-1], replaced(TRAILER, f'"{name}":{given}', f'"{name}":{value}')]


def with_content(text: str) -> list[bytes]:
    return with_line(changed(FIRST, "content", "text", to=text))


def with_attributes(text: bytes, **shown: Any) -> list[bytes]:
    """Other bytes of the attributes behind their header, and what is shown of them."""
    encoded = json.loads(FIRST)["attributes"]["bytes"]
    value = base64.b64decode(encoded)[:5] + text
    line = changed(FIRST, "attributes", "bytes", to=base64.b64encode(value).decode())
    return with_line(changed(line, "attributes", "decoded", to=shown) if shown else line)


def raw(old: bytes, new: bytes) -> list[bytes]:
    assert old in FIRST
    return with_line(FIRST.replace(old, new, 1))


ID = json.loads(HEADER)["session_id"]
EVENT = json.loads(FIRST)["event_id"]
TEN_GB = str(10 * 2**30)

ATTACKS: dict[str, tuple[str, list[bytes]]] = {
    # Order, pieces, other exports
    "the other session's first message": ("wrong_session", with_line(OTHER[2])),
    "the other session's message under this one's name": (
        "previous_hash_mismatch", with_line(replaced(OTHER[2], json.loads(OTHER[0])["session_id"], ID)),
    ),
    "the other session's trailer": ("trailer_mismatch", [*LINES[:-1], OTHER[-1]]),
    "the other session's header": ("wrong_session", [OTHER[0], *LINES[1:]]),
    "this session behind the other": ("wrong_source", [*OTHER, *LINES]),
    "an older export's trailer": ("gap", [*LINES[:3], told(ID).lines(end_sequence=2)[-1]]),
    "an older export's header": ("beyond_end", [told(ID).lines(end_sequence=2)[0], *LINES[1:]]),
    "an older export in front": ("wrong_source", [*told(ID).lines(end_sequence=2), *LINES]),
    "another history in the middle": ("previous_hash_mismatch", [*LINES[:3], told(ID, "1", "2").lines()[3], TRAILER]),
    "another history's content": ("content_mismatch", with_content('{"name":"x"}')),
    "all lines in one": ("malformed_line", [HEADER[:-1] + CREATED, *LINES[2:]]),
    "a header's members in another order": ("malformed_line", [spelled(dict(reversed(json.loads(HEADER).items()))), *LINES[1:]]),
    # Members twice
    "a member twice": ("duplicate_key", raw(b'"sequence":2,', b'"sequence":2,"sequence":2,')),
    "a member twice, once with an escape": ("duplicate_key", raw(b'"sequence":2,', b'"sequence":2,"\\u0073equence":3,')),
    "a member of the content twice": ("duplicate_key", raw(b'"state":', b'"state":"none","state":')),
    "a schema twice": ("duplicate_key", [HEADER.replace(b'"attribute_schemas":{', b'"attribute_schemas":{"a":1,"a":1,'), *LINES[1:]]),
    # Numbers
    **{f"a position written {text[:12]}": ("not_canonical", of("sequence", text)) for text in ("2e0", "-0", "0.20e1")},
    **{
        f"a position written {text[:12]}": ("malformed_line", of("sequence", text))
        for text in (
            "2.0", "02", "+2", "0x2", "2_0", "NaN", "Infinity", "-Infinity", "2.", "1e400", "9" * 5000, "true", "\uff12", "\u0662", "null",
        )
    },
    "a position beyond what is held": ("beyond_end", of("sequence", str(2**63))),
    "a position of ten gigabytes": ("beyond_end", of("sequence", TEN_GB)),
    "a position before the first": ("duplicate", of("sequence", "-1")),
    "a time beyond 64 bits": ("malformed_line", of("accepted_at", str(2**63))),
    "a time that doubles have otherwise": ("hash_mismatch", of("accepted_at", str(2**53 + 1))),
    "a time as a fraction": ("malformed_line", of("accepted_at", "1.0")),
    "an offset of minus nothing": ("not_canonical", of("command_offset", "-0")),
    "a flag as a number": ("malformed_line", of("command_last", "1")),
    "a version as a fraction": ("malformed_line", in_header("format_version", "1.0")),
    "a version that is true": ("malformed_line", in_header("format_version", "true")),
    "a version with an exponent": ("not_canonical", in_header("format_version", "1e0")),
    "an end of ten gigabytes": ("gap", in_header("end_sequence", TEN_GB)),
    "an end of all that is held": ("gap", in_header("end_sequence", str(2**63 - 1))),
    "an end beyond what is held": ("malformed_line", in_header("end_sequence", str(2**63))),
    "an end as a fraction": ("malformed_line", in_header("end_sequence", "3.0")),
    "a beginning of ten gigabytes": ("not_whole", in_header("from_sequence", TEN_GB)),
    "a count of ten gigabytes": ("trailer_mismatch", in_trailer("count", TEN_GB)),
    "a count as a fraction": ("malformed_line", in_trailer("count", "3.0")),
    "attributes that claim ten gigabytes": ("attributes_mismatch", with_attributes(b"\x02\x80\x80\x80\x80\x50user")),
    "attributes that claim less than nothing": ("attributes_mismatch", with_attributes(b"\x02\x01user")),
    "attributes with a number without end": ("attributes_mismatch", with_attributes(b"\x80" * 4096)),
    "attributes of no kind that they may be": ("attributes_mismatch", with_attributes(b"\x7e")),
    "attributes with bytes that are overlong": ("attributes_mismatch", with_attributes(b"\x02\x04\xc0\xaf", role="\u002f")),
    "attributes of twenty bits to spare": ("attributes_mismatch", raw(b'"bytes":"', b'"bytes":"A=')),
    # Texts that look alike
    "an id of look-alikes": ("hash_mismatch", of("event_id", f'"{EVENT.replace("e", chr(0x435), 1)}"')),
    "an id with an escape": ("not_canonical", of("event_id", f'"\\u0065{EVENT[1:]}"')),
    "an id in capitals": ("hash_mismatch", of("event_id", f'"{EVENT.upper()}"')),
    "an id that is a path": ("hash_mismatch", of("event_id", '"../../x"')),
    "a session of look-alikes": ("wrong_session", of("session_id", f'"\u0455{ID[1:]}"')),
    "a session that is a path": ("wrong_session", of("session_id", '"../../x"')),
    "a type of look-alikes": ("attributes_mismatch", of("type", '"m\u0435ssage.appended"')),
    "a kind of look-alikes": ("malformed_line", of("kind", '"\u0435vent"')),
    "a name with a zero width": ("malformed_line", raw(b'"sequence"', '"sequence\u200b"'.encode())),
    "the same name, composed otherwise": ("content_mismatch", with_content(unicodedata.normalize("NFD", TEXT))),
    "the same name, with an escape": ("content_mismatch", with_content(TEXT.replace("\u00e9", "\\u00e9"))),
    "the same name, escaped in the line": ("not_canonical", with_line(replaced(FIRST, "\u00e9", "\\u00e9"))),
    "a slash that is escaped": ("not_canonical", of("event_id", '"..\\/x"')),
    "an escape in capitals": ("not_canonical", of("event_id", '"\\u001F"')),
    "a hash in capitals": ("malformed_line", of("hash", f'"{json.loads(FIRST)["hash"].upper()}"')),
    "a hash of another script": ("malformed_line", of("hash", f'"\uff11{json.loads(FIRST)["hash"][1:]}"')),
    "half a surrogate": ("malformed_line", of("event_id", '"\\ud800"')),
    "a surrogate pair with escapes": ("not_canonical", of("event_id", '"\\ud83d\\ude00"')),
    "half a surrogate, as bytes": ("malformed_line", raw(EVENT.encode(), b"\xed\xa0\x80")),
    "bytes that are overlong": ("malformed_line", raw(EVENT.encode(), b"\xc0\xaf")),
    "a text with a raw control character": ("malformed_line", raw(EVENT.encode(), b"\x00")),
    "a mark in front of the file": ("malformed_line", [b"\xef\xbb\xbf" + HEADER, *LINES[1:]]),
    "a mark in front of a line": ("malformed_line", with_line(b"\xef\xbb\xbf" + FIRST)),
    "another encoding": ("malformed_line", [HEADER[:-1].decode().encode("utf-16") + b"\n", *LINES[1:]]),
    "line ends of another system": ("not_canonical", with_line(FIRST[:-1] + b"\r\n")),
    # A header that names something else
    "a format of look-alikes": ("unknown_format", in_header("format", '"checkfu.sessi\u043en-export"')),
    "a chain of before": ("unknown_format", in_header("chain", '"session-streams/chain/v0"')),
    "a version of before": ("unknown_format", in_header("format_version", "0")),
    "a session in capitals": ("malformed_line", in_header("session_id", f'"{ID.upper()}"')),
    "a schema that is a path": (
        "unknown_schema", [HEADER.replace(b'"attribute_schemas":{', b'"attribute_schemas":{"../../x":{},'), *LINES[1:]],
    ),
    "a schema of look-alikes": ("unknown_schema", [replaced(HEADER, "attributes/message.v1", "\u0430ttributes/message.v1"), *LINES[1:]]),
    # Brackets
    "brackets for a line": ("malformed_line", with_line(b"[" * 100_000 + b"\n")),
    "brackets for a position": ("malformed_line", of("sequence", "[" * 100_000 + "]" * 100_000)),
    "brackets for links": ("malformed_line", of("links", "[" * 900 + "]" * 900)),
    "objects for content": ("malformed_line", of("links", '{"a":' * 100_000 + "1" + "}" * 100_000)),
    "brackets for a schema": (
        "malformed_line", [HEADER.replace(b'"attribute_schemas":{', b'"attribute_schemas":{"x":' + b"[" * 100_000), *LINES[1:]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_its_verdict(name: str) -> None:
    code, lines = ATTACKS[name]
    assert lines != LINES
    verdict = verify(lines)
    assert verdict.code == code, verdict
    assert str(verdict).isascii()
    assert "\n" not in str(verdict)


def test_every_byte_of_an_export_counts() -> None:
    """Nothing in it may be written otherwise, not even what means the same. Of the schemas, which one digest covers each, every 41st."""
    file = b"".join(LINES)
    schemas = range(HEADER.index(b'"attribute_schemas"') + 30, len(HEADER) - 30)
    for place in (place for place in range(len(file)) if place not in schemas or place % 41 == 0):
        spoilt = bytearray(file)
        spoilt[place] ^= 1 << place % 8
        assert not verify(bytes(spoilt).splitlines(keepends=True)).ok, place


def test_schemas_in_another_order_or_that_nothing_uses_change_nothing_that_is_read() -> None:
    """A header is not in the chain: each schema in it is published or refused, and one that attributes need is there or they are."""
    header = json.loads(HEADER)
    schemas = header["attribute_schemas"]
    used = {json.loads(line)["attributes"]["schema"] for line in LINES[1:-1]}
    entries = [entry.fields for entry in read(LINES)]
    for others in (dict(reversed(schemas.items())), {name: schemas[name] for name in schemas if name in used}):
        lines = [spelled({**header, "attribute_schemas": others}), *LINES[1:]]
        assert verify(lines).ok
        assert [entry.fields for entry in read(lines)] == entries
    for name in used:
        without = {other: schema for other, schema in schemas.items() if other != name}
        assert verify([spelled({**header, "attribute_schemas": without}), *LINES[1:]]).code == "attributes_mismatch"


def test_no_beginning_of_an_export_is_one() -> None:
    file = b"".join(LINES)
    for size in [*range(0, len(HEADER), 499), *range(len(HEADER), len(file), 13), len(file) - 1]:
        assert verify(file[:size].splitlines(keepends=True)).code == "incomplete", size


@pytest.mark.parametrize(
    "session_id",
    [
        "../../x", "/etc/passwd", "", "sess_1\nverified sess_2", "sess_\x1b[2K", "s\u0435ss_" + "1" * 32, "sess_" + "A" * 32,
        "sess_" + "\uff11" * 32,
    ],
)  # fmt: skip
def test_a_session_has_an_id_and_no_other_name(session_id: str) -> None:
    """Anybody can write an export whose every hash is right. What a verdict says stands on a screen, and names files."""
    verdict = verify(told(session_id).lines())
    assert (verdict.code, verdict.session_id) == ("malformed_line", None)
    assert str(verdict).isascii()
    assert "\n" not in str(verdict)


def test_a_source_that_is_no_session_is_told_in_quotes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, other = made_up_id("sess", "source"), "\x1b[2Ksess\n\u0455".ljust(36, "x")
    header, line, trailer = History().tell("session.created", SessionAttributes(origin="live", source_session_id=source)).lines()
    value = base64.b64decode(json.loads(line)["attributes"]["bytes"]).replace(source.encode(), other.encode())
    line = changed(line, "attributes", "bytes", to=base64.b64encode(value).decode())
    line = changed(line, "attributes", "decoded", "source_session_id", to=other)
    line = changed(line, "hash", to=evidence.position_hash(json.loads(line)))
    path = tmp_path / "x.ndjson"
    path.write_bytes(header + line + changed(trailer, "last_hash", to=json.loads(line)["hash"]))
    assert main([str(path)]) == 0
    assert main([str(path), "--lineage"]) == 1
    assert r"NOT VERIFIED not_whole: line 2, position 1: forked from '\x1b[2Ksess\n\u0455xxx" in capsys.readouterr().out


def test_nested_as_deep_as_can_be_read_it_is_named_all_the_same() -> None:
    """A value that was just read is written again, and looked at from deeper within: nothing falls over in between."""
    for depth in range(900, 1000):
        nested = "[" * depth + "]" * depth
        schema = HEADER.replace(b'"attribute_schemas":{', b'"attribute_schemas":{"x":%b,' % nested.encode())
        shown = replaced(FIRST, '"decoded":{', f'"decoded":{{"x":{nested},')
        assert verify([schema, *LINES[1:]]).code in ("unknown_schema", "malformed_line")
        assert verify(with_line(shown)).code in ("attributes_mismatch", "malformed_line")


def test_content_that_python_does_not_read_is_there_as_text() -> None:
    lines = told(ID, "[" * 100_000 + "]" * 100_000, "9" * 5000).lines()
    assert verify(lines).ok
    for entry in islice(read(lines), 1, None):
        assert entry.text is not None
        with pytest.raises(ValueError, match=r"too deep|digits"):
            _ = entry.content


class TestSize:
    def test_whatever_a_gateway_takes_has_room_on_a_line(self) -> None:
        """Each byte of it escaped; the structure around it does not grow with it."""
        assert 2 * GatewayLimits().body_bytes_max + len(FIRST) + MIB <= form.LINE_BYTES_MAX

    @pytest.mark.parametrize("text", [b"[],", b"{},", b"1,"])
    def test_a_line_that_is_built_of_little_is_not_built(self, text: bytes) -> None:
        """It would take thirty times its size."""
        line = FIRST.replace(b'"links":[', b'"links":[' + text * (4 * MIB // len(text)))
        verdict, peak = measured(with_line(line))
        assert verdict.code == "malformed_line"
        assert peak < 2 * MIB

    @pytest.mark.parametrize("text", [b'"\\"', b'\\"', b"\\", b'"a"', b'","'])
    def test_a_text_that_has_no_end_is_looked_for_once(self, text: bytes) -> None:
        line = FIRST.replace(b'"links":[', b'"links":["' + text * (2 * MIB // len(text)))
        assert verify(with_line(line)).code == "malformed_line"

    def test_a_line_of_content_takes_a_few_times_its_size(self) -> None:
        lines = told(ID, '"' + '\\"' * 2 * MIB + '"').lines()
        assert len(lines[2]) > 8 * MIB
        verdict, peak = measured(lines)
        assert verdict.ok
        assert peak < 6 * len(lines[2])

    @pytest.mark.parametrize("opened", [open, tempfile.NamedTemporaryFile])
    def test_a_file_of_ten_gigabytes_without_a_line_end_is_not_read(
        self, opened: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However it is given: some files of Python are not told by their class."""
        monkeypatch.setattr(form, "LINE_BYTES_MAX", MIB)
        path = tmp_path / "x.ndjson"
        file = path.open("w+b") if opened is open else opened(dir=tmp_path)
        with file:
            file.write(HEADER)
            file.flush()
            os.truncate(file.name, 10 * 2**30)
            file.seek(0)
            for source in (file, file.name):
                verdict, peak = measured(source)
                assert (verdict.code, verdict.line) == ("malformed_line", 2)
                assert peak < 4 * MIB


def measured(source: Any) -> tuple[Verdict, int]:
    """The verdict, and how much memory it took at most."""
    tracemalloc.start()
    try:
        return verify(source), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
