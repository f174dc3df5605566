"""What a process hands on in its environment is what the next one reads, field by field."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from connectors.gateway.limits import GatewayLimits
from streams.errors import Misconfigured
from streams.settings import Settings

OTHER = Settings(
    bootstrap="broker:9092", topic_prefix="other.", partitions=7, replication=3, data_dir=Path("/srv/data"), instance="b",
    lease_s=1.5, member_session_timeout_s=2.5, transaction_timeout_s=3.5, request_timeout_s=4.5, content_window_days=30, hot_state_mb=5,
    checkpoint_window_s=600, support_dir="/srv/support", signers_dir="/srv/signers", support_days=2.5, blob_store="s3://bucket/prefix",
    keyring="s3://secrets", keyring_endpoint="http://keys", workspace_keys="aws-kms:alias/x", kms_endpoint="http://kms",
    blob_store_endpoint="http://objects", upload_total_s=30.5, orphan_grace_s=61.5, sweep_every_s=6.5, registry_url="http://registry",
    registry_subjects="x.{subject}", destruction_grace_s=7.5, clock_drift_s=8.5, expiries_per_s=9.5, tombstone_horizon_s=10.5,
    compacted_segment_s=11.5, compaction_lag_s=12.5, file_delete_delay_s=13.5, compaction_margin_s=14.5,
    kafka={"sasl.mechanism": "PLAIN", "ssl.ca.location": "/ca.pem"},
)  # fmt: skip


def test_settings_come_back_from_the_environment_that_they_made() -> None:
    """Each field differs from its default, so that one which is not handed on would be noticed."""
    assert not [each.name for each in fields(Settings) if getattr(OTHER, each.name) == getattr(Settings(), each.name)]
    assert Settings.from_environment(OTHER.environment()) == OTHER
    assert Settings.from_environment(Settings().environment()) == Settings()


def test_every_setting_of_the_gateway_is_read() -> None:
    environment = {f"SESSION_STREAMS_GATEWAY_{each.name.upper()}": "3" for each in fields(GatewayLimits)}
    read = GatewayLimits.from_environment(environment)
    assert {str(getattr(read, each.name)) for each in fields(GatewayLimits)} <= {"3", "3.0"}


@pytest.mark.parametrize(("name", "kind"), [("SESSION_STREAMS_PARTITIONS", "int"), ("SESSION_STREAMS_LEASE_S", "float")])
def test_a_variable_that_is_no_number_is_named(name: str, kind: str) -> None:
    with pytest.raises(Misconfigured, match=f"{name}='many': not a valid {kind}"):
        Settings.from_environment({name: "many"})


@pytest.mark.parametrize("grace_s", ["-5", "0", "199", "nan"])
def test_what_could_sweep_an_upload_under_way_is_refused_by_name(grace_s: str) -> None:
    environment = {"SESSION_STREAMS_UPLOAD_TOTAL_S": "100", "SESSION_STREAMS_ORPHAN_GRACE_S": grace_s}
    with pytest.raises(Misconfigured, match=r"SESSION_STREAMS_ORPHAN_GRACE_S=.*twice SESSION_STREAMS_UPLOAD_TOTAL_S=100"):
        Settings.from_environment(environment)
    with pytest.raises(Misconfigured, match="SESSION_STREAMS_UPLOAD_TOTAL_S=0"):
        Settings.from_environment({"SESSION_STREAMS_UPLOAD_TOTAL_S": "0"})
    assert Settings.from_environment({**environment, "SESSION_STREAMS_ORPHAN_GRACE_S": "200"}).orphan_grace_s == 200


def test_stores_lie_below_role_instance_and_partition() -> None:
    settings = replace(OTHER, data_dir=Path("/d"))
    assert settings.store_path("authority", 2) == Path("/d/stores/authority/b/2")
    assert settings.stores_path("authority") == Path("/d/stores/authority")
