"""The search that erasure is proven with finds what is there, however it is written, and nothing where nothing is."""

import base64
import gzip
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.support.searching import NEEDLE_BYTES_MIN, Finding, Needles, search, search_twice

NAME = "Dagný Ólafsdóttir"
SECRET = bytes(range(200, 232))
NEEDLES = Needles({"name": NAME.encode(), "secret": SECRET, "short": b"1987-03-12"})
WRITTEN = {
    "raw": ("name", NAME.encode()),
    "UTF-16": ("name", NAME.encode("utf-16")),
    "UTF-16BE": ("name", NAME.encode("utf-16-be")),
    "JSON": ("name", json.dumps(NAME).encode()),
    "hex": ("secret", SECRET.hex().encode()),
    "HEX": ("secret", SECRET.hex().upper().encode()),
    "base64 +0": ("secret", base64.b64encode(SECRET)),
    "base64 +1": ("secret", base64.b64encode(b"x" + SECRET)),
    "base64 +2": ("secret", base64.b64encode(b"xy" + SECRET + b"z")),
    "base64url +0": ("secret", base64.urlsafe_b64encode(b"xyz" + SECRET + b"zz")),
}
"""Form -> what is written, and how."""


def noise(size: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_needle_is_found_in_each_form_that_programs_write_it_in(form: str, tmp_path: Path) -> None:
    label, written = WRITTEN[form]
    (tmp_path / "file").write_bytes(noise(1000) + written + noise(1000))
    (found,) = search([tmp_path], NEEDLES).findings
    assert (found.label, found.form) == (label, form)


@pytest.mark.parametrize("before", range(17))
def test_the_shortest_needle_is_found_wherever_it_begins_and_where(before: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\0" * before + b"1987-03-12" + b"\0" * (before % 5))
    assert search([tmp_path], NEEDLES).findings == [Finding(str(path), before, "short", "raw")]


def test_what_lies_across_two_pieces_of_a_file_is_found_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for at in (0, (1 << 20) - 5, (1 << 20) - 10, 1 << 20, (2 << 20) - 1):
        path.write_bytes(noise(at) + b"1987-03-12" + noise((3 << 20) - at))
        assert search([tmp_path], NEEDLES).findings == [Finding(str(path), at, "short", "raw")]


def test_nothing_is_found_in_folders_that_hold_none_of_it(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").write_bytes(noise(200_000, number) + b"1987-03-1 2" + SECRET[:-1] + NAME[1:].encode())
    found = search_twice([tmp_path], NEEDLES, between_s=0)
    assert found.findings == []
    assert (found.places, found.bytes) == (40, 40 * (200_000 + 11 + 31 + len(NAME[1:].encode())))


@pytest.mark.parametrize("at", [0, 100, (1 << 20) - 2, (1 << 20) + 1])
@pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, gzip.compress], ids=["zstd", "gzip"])
def test_what_is_compressed_is_found_wherever_the_frame_begins(pack: Callable[[bytes], bytes], at: int, tmp_path: Path) -> None:
    packed = pack(noise(2_000_000) + NAME.encode())
    (tmp_path / "file").write_bytes(noise(at) + packed + noise(100))
    assert search([tmp_path], NEEDLES).labels == {"name"}
    assert NEEDLES.in_bytes(noise(at) + packed, "a record").labels == {"name"}
    assert NEEDLES.in_bytes(b"\x28\xb5\x2f\xfd and no frame \x1f\x8b\x08 nor this", "a record").findings == []


def test_a_name_of_a_file_is_searched_and_its_holes_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / f"of-{NAME}").write_bytes(b"")
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(4 << 30)
        os.pwrite(file.fileno(), SECRET, 3 << 30)
        os.pwrite(file.fileno(), SECRET, 1 << 20)
    found = search([tmp_path], NEEDLES)
    assert sorted((finding.label, finding.offset) for finding in found.findings if finding.label == "secret") == [
        ("secret", 1 << 20),
        ("secret", 3 << 30),
    ]
    assert "name" in found.labels
    assert found.bytes < 1 << 20


def test_a_file_that_is_renamed_while_it_is_searched_ends_no_search(tmp_path: Path) -> None:
    """As the cleaner of a broker does: `.cleaned` becomes `.log`, `.log` becomes `.deleted`, and that goes."""
    over = threading.Event()

    def clean() -> None:
        number = 0
        while not over.is_set():
            path = tmp_path / f"{number}.log"
            path.write_bytes(noise(10_000))
            path.rename(tmp_path / f"{number}.deleted").unlink()
            number += 1

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        (tmp_path / "kept").write_bytes(SECRET)
        for _ in range(50):
            assert search([tmp_path], NEEDLES).labels == {"secret"}
    finally:
        over.set()
        cleaner.join()


def test_a_needle_that_would_be_found_by_chance_is_refused() -> None:
    with pytest.raises(ValueError, match="9 bytes"):
        Needles({"short": b"123456789"})
    assert NEEDLE_BYTES_MIN == 10
