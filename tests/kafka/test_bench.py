"""The benches in little, on a Kafka of their own: every line is measured, and every ratio stands beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RATIOS = {
    "authority_eos_events_per_s": {"ratio_to_raw_consume", "ratio_to_raw_produce"},
    "batch_append_events_per_s": {"ratio_to_authority", "ratio_to_raw_produce"},
    "append_ack_c1_p50_ms": {"ratio_to_R"},
    "append_ack_c16_p50_ms": {"ratio_to_R"},
    "append_ack_c64_p99_ms": {"ratio_to_R", "ratio_to_p50"},
    "append_ack_c256_p99_ms": {"ratio_to_R", "ratio_to_p50"},
    "claim_lane_c1_p50_ms": {"ratio_to_R", "ratio_to_append"},
    "claim_lane_c64_per_s": {"ratio_to_append"},
    "claim_named_c16_p99_ms": {"ratio_to_R", "ratio_to_append", "ratio_to_p50"},
    "checkpoint_create_c1_p50_ms": {"ratio_to_R"},
    "checkpoint_list_at_many_p50_ms": {"ratio_to_few"},
    "agent_save_c1_p50_ms": {"ratio_to_R"},
    "agent_save_c256_p99_ms": {"ratio_to_R", "ratio_to_p50"},
    "agent_get_c16_p50_ms": {"ratio_to_R"},
    "agent_get_c64_p99_ms": {"ratio_to_R", "ratio_to_p50"},
    "snapshot_up_mb_per_s": {"ratio_to_copy"},
    "snapshot_down_mb_per_s": {"ratio_to_copy"},
    "claim_of_many_events_p50_ms": {"ratio_to_few"},
    "conversation_events_per_s": {"ratio_to_raw_consume"},
    "export_mb_per_s": {"ratio_to_zstd"},
    "bundle_mb_per_s": {"ratio_to_zstd", "ratio_to_export"},
}
PLAIN = {
    "raw_produce_records_per_s",
    "raw_consume_records_per_s",
    "raw_transaction_p50_ms",
    "restore_s",
    "restore_sessions_per_s",
    "append_ack_c256_requests_per_s",
    "point_read_session_requests_per_s",
    "point_read_page_requests_per_s",
    "owner_read_session_requests_per_s",
    "owner_read_page_requests_per_s",
    "store_fill_us",
    "store_write_us",
    "store_get_many_absent_us",
    "claim_race_commands_per_grant",
    "checkpoint_create_c16_p50_ms",
    "checkpoint_list_at_few_p50_ms",
    "checkpoint_read_p50_ms",
    "agent_save_c16_requests_per_s",
    "agent_get_c256_requests_per_s",
    "snapshot_seal_and_copy_mb_per_s",
    "claim_of_few_events_p50_ms",
    "export_verified_events_per_s",
    "bundle_verified_events_per_s",
}


GROWTH = {"sessions_100", "sessions_300", "sizes_1024", "sizes_4096", "partitions_1", "partitions_4", "authorities_1"}


@pytest.mark.soak
@pytest.mark.kafka
def test_every_line_of_the_bench_is_measured_with_its_ratios(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json", str(path)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    written = json.loads(path.read_text())
    assert list(written) == ["results"]
    found = {result["name"]: result for result in written["results"]}
    assert set(found) >= set(RATIOS) | PLAIN
    for result in found.values():
        assert result["value"] > 0, result
        assert result["unit"]
    for name, ratios in RATIOS.items():
        assert {field for field in found[name] if field.startswith("ratio_to_")} == ratios, name
        assert all(found[name][ratio] > 0 for ratio in ratios)


@pytest.mark.soak
@pytest.mark.kafka
def test_every_curve_of_growth_is_drawn_and_the_long_run_counts_right(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawn where `bench` is installed")
    path = tmp_path / "growth.json"
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--quick", "--json", str(path)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    found = {result["name"]: result for result in json.loads(path.read_text())["results"]}
    # Two processes may just miss each other here, where they work for a moment only.
    assert {f"{name}_events_per_s" for name in GROWTH} <= set(found)
    assert found["sessions_300_events_per_s"]["ratio_to_first"] > 0
    assert found["sizes_4096_events_per_s"]["event_bytes"] == 4096
    assert found["agent_get_at_2000_c16_p50_ms"]["ratio_to_first"] > 0
    assert found["agent_save_at_2000_c1_requests_per_s"]["value"] > 0
    assert found["bundle_at_2000_gateway_rss_mb"]["ratio_to_bound"] > 0
    assert found["long_events_per_s"]["value"] > 0
    assert found["long_rss_mb"]["ratio_to_first_quarter"] > 0
    assert (tmp_path / "growth-long.svg").read_text().startswith("<?xml")
    assert len(json.loads((tmp_path / "growth-long.json").read_text())) > 2
