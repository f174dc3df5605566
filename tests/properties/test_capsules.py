"""Whatever one field of a valid transfer is changed to, it is not imported."""

import base64
import copy
import json
import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streams.capsules import checks
from streams.capsules.model import ImportCapsule
from streams.capsules.splitting import Malformed, Splitter
from tests.support.capsules import CONTENT, known, signed, unsigned

VALID = signed(unsigned())
Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves(each, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in leaves(each, (*path, index))] + [path]
    return [path]


def split(body: bytes, pieces: random.Random | None = None) -> tuple[bytes, checks.Arrived, bytes]:
    splitter, content, at = Splitter(content_max=10_000, skeleton_max=100_000), b"", 0
    while at < len(body):
        size = len(body) if pieces is None else pieces.randint(1, 97)
        content += splitter.feed(body[at : at + size])
        at += size
    return *splitter.finish(), content


def refused(document: dict[str, Any]) -> bool:
    """Whether what came as this JSON is no request, or is refused."""
    try:
        skeleton, arrived, _ = split(json.dumps(document).encode())
        request = msgspec.json.decode(skeleton, type=ImportCapsule)
    except (msgspec.ValidationError, Malformed):
        return True
    return checks.refusal(request, known(arrived=arrived)) is not None


def changed(value: Any, data: st.DataObject) -> Any:
    """Another value, mostly of the same kind and near to it."""
    if isinstance(value, str) and value:
        at = data.draw(st.integers(0, len(value) - 1))
        near = value[:at] + data.draw(st.sampled_from("0123456789abcdefABCXYZ+/=_-. \u0435")) + value[at + 1 :]
        found = data.draw(st.sampled_from([near, value[:-1], value + value[-1], value.upper(), "", None, 1]))
    elif isinstance(value, int):
        found = data.draw(st.sampled_from([value + 1, max(0, value - 1), -1, 2**53, float(value), str(value), True, None]))
    else:
        found = data.draw(st.sampled_from([[], None, "", [*value, *value], {}])) if isinstance(value, list) else None
    return found


@given(st.sampled_from(leaves(VALID)), st.data())
def test_a_valid_transfer_with_one_field_changed_is_never_imported(path: Path, data: st.DataObject) -> None:
    document = copy.deepcopy(VALID)
    place: Any = document
    for name in path[:-1]:
        place = place[name]
    other = changed(place[path[-1]], data)
    if type(other) is type(place[path[-1]]) and other == place[path[-1]]:
        return
    place[path[-1]] = other

    assert refused(document), path


@given(st.sampled_from([path for path in leaves(VALID) if not isinstance(path[-1], int)]))
def test_a_valid_transfer_with_one_field_less_is_never_imported(path: Path) -> None:
    document = copy.deepcopy(VALID)
    place: Any = document
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]

    assert refused(document), path


def test_the_transfer_that_is_changed_is_a_valid_one() -> None:
    assert not refused(VALID)


@given(st.randoms(use_true_random=False), st.binary(max_size=500), st.booleans())
def test_content_comes_out_the_same_however_the_body_is_cut(pieces: random.Random, content: bytes, escaped: bool) -> None:
    document = copy.deepcopy(VALID)
    document["transfer"]["content_base64"] = base64.b64encode(content).decode()
    body = json.dumps(document).encode()
    if escaped:
        body = body.replace(b"/", b"\\/").replace(b"+", b"\\u002b")

    skeleton, arrived, found = split(body, pieces)

    assert (found, arrived.byte_count, arrived.decoded) == (content, len(content), True)
    assert json.loads(skeleton)["transfer"] == {**document["transfer"], "content_base64": ""}
    assert (skeleton, arrived) == split(body)[:2]


def test_the_content_is_the_one_that_was_signed() -> None:
    assert split(json.dumps(VALID).encode())[2] == CONTENT
