"""Takes the content out of the body of an import while it comes: what is left is small enough to be parsed as a whole.

The body is walked as JSON far enough to know where `$.transfer.content_base64` stands. Its text is decoded piece by piece and never
held; in what is left (`skeleton`) an empty text stands in its place. Whether that is JSON, and of the right form, is its parser's to
say; an object that names a member twice is refused here, since a parser would quietly take one of them.
"""

import binascii
import hashlib
import json
import re
from typing import Any, Final

from streams.capsules.checks import Arrived

_PLACE: Final = ("transfer", "content_base64")
# Possessive: what has no end yet is not tried again in shorter pieces, which costs a stack of its length.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^"{}\[\]:,]++', re.DOTALL)
_STOP: Final = re.compile(rb'["\\]')
_ESCAPE: Final = re.compile(rb'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_LONGEST_ESCAPE: Final = 6
_UNFINISHED_BYTES_MAX: Final = 16 * 1024
"""Of a text or number that goes on in the next piece, however small the pieces are: it is looked at again with each. No member but the
content has room for so much."""
_DEPTH_MAX: Final = 500
"""Of objects and arrays: each that is open is remembered, which takes three hundred times the room of its bracket. A request has few."""
_WHOLE: Final = frozenset(b'"{}[]:,'[index : index + 1] for index in range(7))
"""How tokens begin that end by themselves."""
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")


class TooLarge(Exception):
    """`limit` bytes of what (`content`, `structure`)."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what}: at most {limit} bytes")


class Malformed(Exception):
    """No JSON, a member twice, or nested deeper than any request."""


class _Frame:
    """An object or array that is open. `key` is that of the member at hand."""

    __slots__ = ("is_object", "key", "names", "wants_key")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.wants_key = is_object
        self.key: str | None = None
        self.names: set[str] = set()


class _Base64:
    """Decodes base64 that comes in pieces, strictly: only one text stands for some bytes."""

    def __init__(self) -> None:
        self.ok = True
        self._held = b""
        self._over = False

    def add(self, text: bytes) -> bytes:
        whole = self._held + text
        cut = len(whole) - len(whole) % 4
        self._held = whole[cut:]
        return self._decoded(whole[:cut])

    def finish(self) -> None:
        self.ok = self.ok and not self._held

    def _decoded(self, block: bytes) -> bytes:
        if not block or not self.ok:
            return b""
        # Nothing may follow an end.
        self.ok = not self._over
        self._over = block.endswith(b"=")
        try:
            found = binascii.a2b_base64(block, strict_mode=True)
        except binascii.Error:
            self.ok = False
        # The bits that an end leaves unused are zero.
        self.ok = self.ok and (not self._over or binascii.b2a_base64(found, newline=False) == block)
        return found if self.ok else b""


class Splitter:
    """`feed` each piece of the body and keep what it returns: the content, in order. Then `finish`. Sizes in bytes.

    Both raise `TooLarge` and `Malformed`.
    """

    def __init__(self, *, content_max: int, skeleton_max: int) -> None:
        self._content_max, self._skeleton_max = content_max, skeleton_max
        self._held = b""
        self._skeleton = bytearray()
        self._stack: list[_Frame] = []
        self._in_content = False
        self._base64 = _Base64()
        self._sha256: Any = hashlib.sha256()
        self._size = self._text_size = 0

    def feed(self, piece: bytes) -> bytes:
        self._held += piece
        made: list[bytes] = []
        while self._held:
            before = len(self._held)
            if self._in_content:
                made.append(self._content())
            else:
                self._structure()
            if len(self._held) == before:
                break
        return b"".join(made)

    def finish(self) -> tuple[bytes, Arrived]:
        """The skeleton, and what came as content."""
        if self._in_content or self._held.startswith(b'"'):
            raise Malformed("the body ends within a text")
        self._keep(self._held)
        return bytes(self._skeleton), Arrived(self._size, f"sha256:{self._sha256.hexdigest()}", self._base64.ok)

    def _structure(self) -> None:
        """Takes what is whole of the structure, up to where the content begins."""
        held, at = self._held, 0
        while at < len(held):
            if held[at : at + 1] == b'"' and self._is_content():
                break
            token = _TOKEN.match(held, at)
            if token is None:
                break  # a text that goes on
            if token.end() == len(held) and held[at : at + 1] not in _WHOLE:
                break  # a number or word may go on
            self._walk(token[0])
            at = token.end()
        self._keep(self._held[:at])
        self._held = self._held[at:]
        if self._held.startswith(b'"') and self._is_content():
            self._keep(b'""')
            self._held = self._held[1:]
            self._in_content = True
        elif len(self._held) > min(_UNFINISHED_BYTES_MAX, self._skeleton_max - len(self._skeleton)):
            raise TooLarge("a text of the structure", _UNFINISHED_BYTES_MAX)

    def _is_content(self) -> bool:
        stack = self._stack
        return len(stack) == len(_PLACE) and all(
            frame.is_object and not frame.wants_key and frame.key == name for frame, name in zip(stack, _PLACE, strict=True)
        )

    def _walk(self, token: bytes) -> None:
        top = self._stack[-1] if self._stack else None
        if token in (b"{", b"["):
            if len(self._stack) == _DEPTH_MAX:
                raise Malformed(f"nested deeper than {_DEPTH_MAX} levels")
            self._stack.append(_Frame(is_object=token == b"{"))
        elif token in (b"}", b"]"):
            if top is None:
                raise Malformed("brackets that do not match")
            self._stack.pop()
        elif top is not None and top.is_object:
            if token == b",":
                top.wants_key, top.key = True, None
            elif token == b":":
                top.wants_key = False
            elif top.wants_key and token[:1] == b'"':
                top.key = _text_of(token)
                if top.key in top.names:
                    raise Malformed("a member stands twice in one object")
                top.names.add(top.key)

    def _content(self) -> bytes:
        held = self._held
        stop = _STOP.search(held)
        end = len(held) if stop is None else stop.start()
        made = self._decoded(held[:end])
        self._held = held[end:]
        if stop is None:
            return made
        if held[end : end + 1] == b'"':
            self._base64.finish()
            self._in_content = False
            self._held = held[end + 1 :]
            return made
        escape = _ESCAPE.match(held, end)
        if escape is None:
            if len(held) - end >= _LONGEST_ESCAPE:
                raise Malformed("an escape that is none")
            return made  # it may go on in the next piece
        self._held = held[escape.end() :]
        text = _ESCAPED.get(escape[1], escape[1]) if escape[2] is None else chr(int(escape[2], 16)).encode("utf-8", "surrogatepass")
        return made + self._decoded(text, escaped=True)

    def _decoded(self, text: bytes, *, escaped: bool = False) -> bytes:
        if not escaped and _CONTROL.search(text) is not None:
            raise Malformed("a control character within a text")
        self._text_size += len(text)
        found = self._base64.add(text)
        self._size += len(found)
        if max(self._size, self._text_size * 3 // 4 - 2) > self._content_max:
            raise TooLarge("content", self._content_max)
        self._sha256.update(found)
        return found

    def _keep(self, text: bytes) -> None:
        self._skeleton += text
        if len(self._skeleton) > self._skeleton_max:
            raise TooLarge("structure", self._skeleton_max)


def _text_of(token: bytes) -> str:
    try:
        found = json.loads(token)
    except ValueError as error:
        raise Malformed("a name that is no text") from error
    return str(found)
