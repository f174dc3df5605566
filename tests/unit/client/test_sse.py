"""The parser of event streams, whatever pieces they come in."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from session_streams.sse import Message, Parser

TEXT = b"retry: 1000\n\nid: 1\nevent: a\ndata: {}\n\n: comment\n\nid: 2\nevent: b\ndata: x\ndata:  y\n\ndata: \xc3\xa4\r\n\r\nid: 3\n"
MESSAGES = [Message("1", "a", "{}"), Message("2", "b", "x\n y"), Message("2", "message", "ä")]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_messages_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    parser = Parser()
    places = [0, *sorted(cuts), len(TEXT)]
    told = [message for start, end in pairwise(places) for message in parser.feed(TEXT[start:end])]
    assert told == MESSAGES
