"""The peers' bench sees what an engine does wrong, takes rates from the stamps, and fetches nothing from a place of its own."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.peers import engines, environments, restore, source
from benchmarks.peers.check import Audit, Ledger, WrongOutput, compare, rate_per_s, state_of
from benchmarks.peers.engines import ENGINES, Streams, Task
from benchmarks.peers.fold import STATE_BYTES, advance

A, B = b"sess_a", b"sess_b"
INPUT = [(A, b"one"), (B, b"two"), (A, b"three"), (A, b"four")]


def outputs(values: list[tuple[bytes, bytes]] = INPUT) -> list[tuple[bytes, bytes]]:
    """What an engine writes."""
    states: dict[bytes, bytes] = {}
    written = []
    for key, value in values:
        states[key] = advance(states.get(key), value)
        written.append((key, states[key] + value))
    return written


def audited(written: list[tuple[bytes, bytes]], *, duplicates_allowed: bool = False) -> int:
    ledger = Ledger()
    for key, value in INPUT:
        ledger.add(key, value)
    audit = Audit(ledger.states, duplicates_allowed=duplicates_allowed)
    for key, output in written:
        audit.add(key, output)
    audit.finish()
    return audit.duplicates


def test_the_fold_counts_and_chains_hashes() -> None:
    first = hashlib.sha256(bytes(32) + b"one").digest()
    second = hashlib.sha256(first + b"three").digest()
    state = advance(advance(None, b"one"), b"three")
    assert state == (2).to_bytes(8, "big") + second
    assert len(state) == STATE_BYTES


def test_the_independent_fold_comes_to_the_same() -> None:
    ledger = Ledger()
    for key, value in INPUT:
        ledger.add(key, value)
    last = dict(outputs())
    assert ledger.states == {key: state_of(output[:STATE_BYTES]) for key, output in last.items()}


def test_what_an_engine_writes_right_passes() -> None:
    assert audited(outputs()) == 0


@pytest.mark.parametrize("missing", range(len(INPUT)))
def test_a_lost_output_is_seen(missing: int) -> None:
    written = outputs()
    del written[missing]
    with pytest.raises(WrongOutput):
        audited(written)


@pytest.mark.parametrize("doubled", range(len(INPUT)))
def test_a_doubled_output_is_seen_and_counted_where_it_is_allowed(doubled: int) -> None:
    written = outputs()
    written.append(written[doubled])
    with pytest.raises(WrongOutput, match="again"):
        audited(written)
    assert audited(written, duplicates_allowed=True) == 1


def test_an_input_that_was_folded_twice_is_no_duplicate_but_wrong() -> None:
    written = outputs([*INPUT, INPUT[-1]])
    with pytest.raises(WrongOutput, match="4 counted, 3 expected"):
        audited(written, duplicates_allowed=True)


def test_an_output_out_of_order_is_seen() -> None:
    written = outputs()
    written[2], written[3] = written[3], written[2]
    with pytest.raises(WrongOutput, match="count 3 after 1"):
        audited(written)


@pytest.mark.parametrize("at", [0, 8, 39, 40])
def test_a_changed_byte_is_seen_in_count_hash_and_value(at: int) -> None:
    written = outputs()
    key, output = written[0]
    written[0] = (key, output[:at] + bytes([output[at] ^ 1]) + output[at + 1 :])
    with pytest.raises(WrongOutput):
        audited(written)


def test_another_key_s_output_is_seen() -> None:
    written = [(b"sess_c" if key == B else key, output) for key, output in outputs()]
    with pytest.raises(WrongOutput):
        audited(written)


def test_states_are_compared_both_ways() -> None:
    one, other = (1, bytes(32)), (1, bytes(31) + b"1")
    compare({A: one}, {A: one}, "changelog")
    with pytest.raises(WrongOutput, match="0 counted, 1 expected"):
        compare({}, {A: one}, "changelog")
    with pytest.raises(WrongOutput, match="1 counted, 0 expected"):
        compare({A: one}, {}, "changelog")
    with pytest.raises(WrongOutput, match="another hash"):
        compare({A: other}, {A: one}, "changelog")


def test_a_rate_is_what_came_behind_a_part_of_all() -> None:
    """The first ten come slowly, the rest one a millisecond."""
    stamps = [0, *range(100, 1000, 100), *range(1000, 1091)]
    assert rate_per_s(stamps, 0.1) == pytest.approx(1000)
    assert rate_per_s(stamps, 0.5) == pytest.approx(1000)
    assert rate_per_s(stamps, 0) == pytest.approx(100 * 1000 / 1090)


def test_all_within_a_millisecond_is_a_rate_and_one_stamp_is_none() -> None:
    assert rate_per_s([5] * 11, 0.1) == 9000
    with pytest.raises(ValueError, match="too few"):
        rate_per_s([5], 0.1)


def test_the_input_is_the_same_each_time_and_spread_over_its_keys() -> None:
    made = list(source.keyed(2000, 50, 20))
    assert made == list(source.keyed(2000, 50, 20))
    assert {len(value) for _, value in made} == {50}
    counts = Counter(key for key, _ in made)
    assert len(counts) == 20
    assert min(counts.values()) > 50


def test_engines_are_chosen_by_name_and_by_family_ours_last() -> None:
    assert engines.chosen([]) == list(ENGINES)
    assert engines.chosen(["ours", "faust"]) == ["faust-1", "ours-1", "ours-2"]
    assert engines.chosen(["streams-2"]) == ["streams-2"]
    with pytest.raises(KeyError):
        engines.chosen(["storm"])


def test_every_engine_is_told_of(tmp_path: Path) -> None:
    """Its name in the README, and each setting of Kafka Streams with its value."""
    page = (environments.HERE / "README.md").read_text()
    for name in ENGINES:
        assert f"`{name}`" in page
    task = Task("HOST:9092", "NAME", "INPUT", "OUTPUT", tmp_path)
    for key, value in Streams(1, True).settings(task, 0).items():
        if value not in ("HOST:9092", "NAME", "INPUT", "OUTPUT", str(task.state_dir(0))):
            assert f"`{key}`" in page, key


def test_peers_are_pinned_and_come_from_wherever_the_machine_s_own_settings_say() -> None:
    for name in ("quix", "faust"):
        lines = (environments.HERE / f"{name}-requirements.txt").read_text().split()
        assert all("==" in line and "/" not in line for line in lines), name
    pom = (environments.HERE / "kafka-streams" / "pom.xml").read_text()
    assert "<repositor" not in pom
    assert "SNAPSHOT" not in pom


def test_the_restore_of_kafka_streams_is_read_from_what_it_says(tmp_path: Path) -> None:
    task = Task("HOST:9092", "NAME", "INPUT", "OUTPUT", tmp_path)
    assert restore._streams(task) == {}
    task.log(0).write_text(
        "restore_started 1 10 1000\n[main] WARN something\nrestore_started 0 10 1500\nrestore_ended 1 10 2500\nrestore_en"
    )
    assert restore._streams(task) == {1: (1.0, 2.5)}


def test_the_restore_of_our_loop_is_read_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '{"event": "loop_started", "timestamp": "2026-01-01T00:00:00Z"}\n'
        '{"event": "store_restored", "partition": 3, "seconds": 2.5, "timestamp": "2026-01-01T00:00:10Z"}\n{"event'
    )
    begin, end = restore._ours(log)[3]
    assert end - begin == 2.5
