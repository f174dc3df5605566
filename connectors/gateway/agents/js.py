"""JSON as JavaScript reads and writes it: JSON.parse, JSON.stringify and what is around them, in the terms of Python.

A state is kept and hashed as `JSON.stringify(JSON.parse(body).state)` (page 06, 1.6), so every habit of that pair is part of
the contract: numbers are doubles, index-like names come first, of a repeated name the last value stands at the first place.

A parsed value is None, bool, str, list, dict, an int where a number is integral and below 2**53, and for every other number a
`msgspec.Raw` that holds its text; an infinity is the text `null`, as it is written. A str may hold lone surrogates.
"""

import json
import re
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import msgspec

from connectors.edge.json_text import depth_exceeds

DEPTH_MAX: Final = 64
_EXACT: Final = 2**53
_INDEX_MAX: Final = 2**32 - 2
_BOM: Final = b"\xef\xbb\xbf"
_WHITE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LONE: Final = re.compile("[\ud800-\udfff]")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,9}")
# A string ends or begins at each quote, and where one ends no digit follows: nothing but a name is found.
_INDEX_NAME: Final = re.compile(rb'"(?:0|[1-9][0-9]{0,9})":')


class NotJson(ValueError):
    """JSON.parse would throw a SyntaxError."""


class Blank(NotJson):
    """Nothing is left of it once trimmed."""


class TooDeep(ValueError):
    """JSON, but nested deeper than `DEPTH_MAX`; a bare array or object is one deep."""


def text_of(raw: bytes) -> str:
    """As TextDecoder reads UTF-8: one byte order mark is dropped, what is malformed becomes U+FFFD."""
    return raw.removeprefix(_BOM).decode(errors="replace")


def trim(text: str) -> str:
    """String.prototype.trim: U+FEFF goes, U+0085 and U+001C to U+001F stay."""
    return text.strip(_WHITE)


def length(text: str) -> int:
    """In UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_well_formed(text: str) -> bool:
    """Whether no surrogate stands alone."""
    return text.isascii() or _LONE.search(text) is None


def number_text(value: float) -> str:
    """As JSON.stringify writes a number; `null` for what is not finite."""
    if value == 0:
        return "0"
    if value != value or value in (float("inf"), float("-inf")):
        return "null"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.digits times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits) if whole == "0" else 0)
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{point - 1:+d}"


def parse(raw: bytes) -> Any:
    """Raises `Blank`, `NotJson`, `TooDeep`, in this order where several hold."""
    text = text_of(raw)
    if depth_exceeds(raw, DEPTH_MAX):
        # Brackets that do not match are counted as too deep as well, and nothing may recurse into this text.
        raise TooDeep if _is_json(text) else NotJson
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise (NotJson if trim(text) else Blank) from error


def stringify(value: Any) -> str:
    """JSON.stringify of what `parse` gave. Lone surrogates are escaped, so it can always be encoded."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _written(value)
    return text.decode() if _INDEX_NAME.search(text) is None else _written(value)


def _written(value: Any) -> str:
    """The same with names in their order and every string looked at."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{','.join([_written(each) for each in value])}]"
    if isinstance(value, dict):
        indices = sorted([name for name in value if _is_index(name)], key=int)
        names = [*indices, *[name for name in value if not _is_index(name)]]
        return f"{{{','.join([f'{_quoted(name)}:{_written(value[name])}' for name in names])}}}"
    return msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    return _LONE.sub(lambda lone: f"\\u{ord(lone[0]):04x}", encode_basestring(text))


def _is_index(name: str) -> bool:
    return _INDEX.fullmatch(name) is not None and int(name) <= _INDEX_MAX


def _number(text: str) -> int | msgspec.Raw:
    value = float(text)
    if -_EXACT < value < _EXACT and value.is_integer():
        return int(value)
    return msgspec.Raw(number_text(value).encode())


def _integer(text: str) -> int | msgspec.Raw:
    return int(text) if len(text) <= 15 else _number(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_number, parse_int=_integer, parse_constant=_constant)

# -- text of any depth: whether it is JSON, without recursion ---------------------------------------------------------

_SPACE: Final = r"[ \t\n\r]*+"
_STRING: Final = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_SCALAR: Final = rf"(?:{_STRING}|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
_NAME: Final = re.compile(rf"{_SPACE}{_STRING}{_SPACE}:")
_BEGIN: Final = re.compile(rf"{_SPACE}(?:(\[)(?!{_SPACE}\])|(\{{)(?!{_SPACE}\}})|\[{_SPACE}\]|\{{{_SPACE}\}}|{_SCALAR})")
_GO_ON: Final = re.compile(rf"{_SPACE}(?:(,)|([\]}}]))")
_END: Final = re.compile(rf"{_SPACE}\Z")
_ARRAY_ENDS, _OBJECT_ENDS = b"]}"


def _is_json(text: str) -> bool:
    at, closers = 0, bytearray()
    while True:
        begun = _BEGIN.match(text, at)
        if begun is None:
            return False
        at, named = begun.end(), begun[2] is not None
        if named or begun[1] is not None:
            closers.append(_OBJECT_ENDS if named else _ARRAY_ENDS)
        else:
            # A value is whole, and with it whatever closes now.
            while closers:
                then = _GO_ON.match(text, at)
                if then is None:
                    return False
                at = then.end()
                if then[1]:
                    named = closers[-1] == _OBJECT_ENDS
                    break
                if ord(then[2]) != closers.pop():
                    return False
            else:
                return _END.match(text, at) is not None
        if named:
            name = _NAME.match(text, at)
            if name is None:
                return False
            at = name.end()
