"""Whatever is done to a bundle ends in a verdict that has a name, and a second verifier, written in another language, says the same."""

import subprocess
from pathlib import Path

import pytest

from connectors.cli.kafka import jars
from session_streams.bundle import verdict, verify
from tests.support.bundle_vectors import Vector, Vectors

JAVA = Path(__file__).parent.parent.parent / "vectors" / "VerifyBundle.java"


@pytest.fixture(scope="module")
def made() -> Vectors:
    return Vectors()


@pytest.fixture(scope="module")
def vectors(made: Vectors) -> list[Vector]:
    return made.all()


def test_each_thing_done_to_a_bundle_has_its_verdict(vectors: list[Vector]) -> None:
    found = {each.name: verify(each.file, each.trust).code for each in vectors}
    assert found == {each.name: each.code for each in vectors}
    assert len(found) == len(vectors) >= 100


def test_the_vectors_reach_every_verdict_that_the_page_names(vectors: list[Vector]) -> None:
    named = {line.split()[0] for line in (verdict.__doc__ or "").splitlines()[3:] if line}
    assert named - {each.code for each in vectors} == {"other_session", "other_history", "too_short"}


def test_a_byte_that_is_another_one_is_found_wherever_it_stands(made: Vectors) -> None:
    """Every byte of what stands around the events, and every 31st of the events and their schemas."""
    file, trust = made.good, made.trust
    events = range(file.index(b'{"kind":"header"'), file.index(b'{"kind":"trailer"'))
    for place in (place for place in range(len(file)) if place not in events or place % 31 == 0):
        spoilt = bytearray(file)
        spoilt[place] ^= 1 << place % 8
        assert not verify(bytes(spoilt), trust).ok, place


@pytest.mark.soak
def test_every_bit_of_every_byte_counts(made: Vectors) -> None:
    for place in range(len(made.good)):
        for bit in range(8):
            spoilt = bytearray(made.good)
            spoilt[place] ^= 1 << bit
            assert not verify(bytes(spoilt), made.trust).ok, (place, bit)


def test_no_beginning_of_a_bundle_is_one(made: Vectors) -> None:
    for size in range(0, len(made.good), 97):
        assert verify(made.good[:size], made.trust).code == "malformed_envelope"


def test_the_verifier_in_java_agrees_on_every_vector(made: Vectors, vectors: list[Vector], tmp_path: Path) -> None:
    cases = list(vectors)
    for place in range(0, len(made.good), 499):
        spoilt = bytearray(made.good)
        spoilt[place] ^= 4
        cases.append(Vector(f"byte {place}", verify(bytes(spoilt), made.trust).code, bytes(spoilt), made.trust))
    arguments: list[str] = []
    for number, case in enumerate(cases):
        for kind, data in (("trust", case.trust), ("bundle", case.file)):
            (tmp_path / f"{number}.{kind}").write_bytes(data)
            arguments.append(str(tmp_path / f"{number}.{kind}"))
    # Its JSON is read by a library that Kafka brings.
    command = [str(jars.java()), "-cp", f"{jars.jars()}/*", str(JAVA), *arguments]
    answered = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    said = [line.split()[0] for line in answered.splitlines()]
    assert {case.name: code for case, code in zip(cases, said, strict=True)} == {case.name: case.code for case in cases}
