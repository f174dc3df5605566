"""Any history exports and verifies, and comes back as it was; any other byte, and any line elsewhere, is found."""

import json
from io import BytesIO
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from session_streams.export import read, verify
from tests.properties.test_codec import drafts
from tests.support.exports import History, conversation

LINES = conversation(2).lines()
few = settings(max_examples=50, deadline=None)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
texts = st.builds(json.dumps, json_values, ensure_ascii=st.booleans(), indent=st.none() | st.integers(0, 2))
contents = st.tuples(texts | st.none(), st.sampled_from([None, None, "expired", "erased", "omitted", "unreadable"])).map(
    lambda given: (given[0] if given[0] is not None or given[1] in (None, "omitted") else "0", given[1])
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    for draft in draw(st.lists(drafts(), min_size=1, max_size=4)):
        text, gone = draw(contents)
        history.accept(draft, text=text, gone=gone)
    return history


@few
@given(history=histories())
def test_any_history_verifies_and_comes_back_deep_equal(history: History) -> None:
    verdict = verify(history.lines())
    assert verdict.ok, verdict
    entries = list(read(history.lines()))
    assert len(entries) == len(history.events)
    for entry, (event, raw, opened) in zip(entries, history.events, strict=True):
        assert (entry.sequence, entry.type, entry.fields["occurred_at"]) == (event.sequence, event.type, event.occurred_at)
        assert (entry.fields["attributes"] is None) == (raw is None)
        if event.attributes is not None:
            assert entry.attributes == {
                name: value if value not in (float("inf"), float("-inf")) else str(value)
                for name, value in structs.asdict(event.attributes).items()
                if value is not None
            }
        text = getattr(opened, "json_text", None)
        assert entry.text == (None if text is None else text.decode())
        assert text is None or entry.content == json.loads(text)


@few
@given(history=histories(), data=st.data())
def test_any_byte_that_is_another_one_is_found(history: History, data: st.DataObject) -> None:
    """No byte is left out: the whole file is structure that is chained, or checked against it, in one spelling."""
    lines = history.lines()
    line = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[line]) - 1))
    flipped = bytearray(lines[line])
    flipped[place] ^= data.draw(st.integers(1, 255))
    verdict = verify(BytesIO(b"".join([*lines[:line], bytes(flipped), *lines[line + 1 :]])))
    assert not verdict.ok, (line, place, lines[line][max(0, place - 40) : place + 40])


@few
@given(history=histories(), data=st.data())
def test_any_line_that_is_gone_moved_or_repeated_is_found(history: History, data: st.DataObject) -> None:
    lines = history.lines()
    one, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    without = [*lines[:one], *lines[one + 1 :]]
    assert not verify(without).ok
    assert not verify([*lines[:other], lines[one], *lines[other:]]).ok
    moved = [*without[:other], lines[one], *without[other:]]
    assert verify(moved).ok == (moved == lines)


@few
@given(history=histories(), data=st.data())
def test_an_export_cut_anywhere_is_continued_to_the_same_bytes(history: History, data: st.DataObject) -> None:
    whole = b"".join(history.lines())
    cut = whole[: data.draw(st.integers(len(history.lines()[0]), len(whole) - 1))]
    verdict = verify(BytesIO(cut))
    assert verdict.code == "incomplete"
    rest = history.lines(from_sequence=verdict.next_sequence)[1:]
    assert cut[: verdict.good_bytes] + b"".join(rest) == whole


@given(data=st.binary(max_size=400))
def test_any_bytes_whatever_get_a_verdict(data: bytes) -> None:
    assert not verify(BytesIO(data)).ok


@few
@given(name=st.sampled_from(sorted(json.loads(LINES[1]))), value=json_values)
def test_any_value_whatever_in_the_place_of_another_gets_a_verdict(name: str, value: Any) -> None:
    line = {**json.loads(LINES[1]), name: value}
    odd = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    verdict = verify([LINES[0], odd, *LINES[2:]])
    assert verdict.ok == (odd == LINES[1])
