"""The published bundle verifies, is what we make of its events to the byte, and is what docs/bundle.md quotes."""

from pathlib import Path

from session_streams.bundle import verify
from tests.support.bundle_vector import FILE, KEY, TRUST
from tests.support.bundles import bundle_of, parts_of, payload_of

PAGE = Path(__file__).parents[3] / "docs" / "bundle.md"


def test_it_verifies_and_says_what_is_gone() -> None:
    verdict = verify(FILE, TRUST)
    assert (verdict.code, verdict.end_sequence, verdict.key_id) == ("verified", 4, KEY.public.key_id)
    assert verdict.sections[0].gaps == ({"reason": "erased", "count": 1, "first_sequence": 3, "last_sequence": 3},)


def test_the_same_lines_and_the_same_key_give_the_same_bytes() -> None:
    file = FILE.read_bytes()
    assert bundle_of(parts_of(file)["events"].splitlines(keepends=True), KEY) == file


def test_the_page_quotes_it() -> None:
    file, page = FILE.read_bytes(), PAGE.read_text(encoding="utf-8")
    for line in [*parts_of(file)["actors"].splitlines(), *parts_of(file)["work"].splitlines(), file.splitlines()[5]]:
        assert f"\n{line.decode()}\n" in page
    assert payload_of(file).decode() in page.replace("\n", "")
    assert TRUST.read_text(encoding="utf-8").strip() in page.replace("\n", "")
    assert str(verify(FILE, TRUST)) in page
