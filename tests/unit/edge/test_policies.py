"""Policies of workspaces: what is pinned to a session at its creation, and that nothing is guessed where it is not known."""

import pytest

from connectors.edge.keys import KeyAdministration, KeyTable
from connectors.edge.policies import PolicyAdministration, PolicyTable, WorkspacePolicy, decode_row, encode_row, row_key
from schemas.codec import encode
from streams.errors import Invalid, Misconfigured, Retriable
from streams.settings import Settings

WORKSPACE = "ws_" + "a" * 32
OTHER = "ws_" + "b" * 32
NOW = 1_000_000_000
DAY_S = 86_400
THIRTY_DAYS_S = 30 * DAY_S
SETTINGS = Settings(content_window_days=90)


class Table:
    """Rows as a follower holds them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.fresh = True

    def write(self, key: bytes, value: bytes) -> None:
        self.rows = {**self.rows, key: value}


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def administration(table: Table) -> PolicyAdministration:
    return PolicyAdministration(SETTINGS, write=table.write, read=lambda: table.rows, clock=lambda: NOW)


def test_without_a_policy_the_settings_of_the_installation_hold(table: Table) -> None:
    assert PolicyTable(table, SETTINGS).of(WORKSPACE) == WorkspacePolicy(
        mode="standard", content_window_days=90, checkpoint_window_s=THIRTY_DAYS_S, changed_at=None
    )


def test_a_policy_holds_for_its_workspace_from_the_next_table_on(table: Table, administration: PolicyAdministration) -> None:
    policies = PolicyTable(table, SETTINGS)
    assert policies.of(WORKSPACE).mode == "standard"
    administration.set(WORKSPACE, mode="zdr", content_window_days=7, checkpoint_window_s=DAY_S)
    assert policies.of(WORKSPACE) == WorkspacePolicy(mode="zdr", content_window_days=7, checkpoint_window_s=DAY_S, changed_at=NOW)
    assert policies.of(OTHER).mode == "standard"
    administration.set(WORKSPACE, mode="standard")
    assert policies.of(WORKSPACE).mode == "standard"


def test_what_is_not_given_stays_as_it_is(administration: PolicyAdministration) -> None:
    administration.set(WORKSPACE, checkpoint_window_s=DAY_S)
    changed = administration.set(WORKSPACE, mode="zdr")
    assert (changed.mode, changed.content_window_days, changed.checkpoint_window_s) == ("zdr", 90, DAY_S)
    assert administration.show(WORKSPACE) == changed


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("checkpoint_window_s", THIRTY_DAYS_S + 1, "1 to 2592000"),
        ("checkpoint_window_s", 0, "1 to 2592000"),
        ("checkpoint_window_s", -1, "1 to 2592000"),
        ("content_window_days", 0, "1 to 36500"),
        ("content_window_days", 36_501, "1 to 36500"),
        ("mode", "none", "standard, zdr"),
    ],
)
def test_a_value_beyond_its_limit_is_refused_with_field_and_limit(
    table: Table, administration: PolicyAdministration, field: str, value: object, limit: str
) -> None:
    with pytest.raises(Invalid, match=field) as refused:
        administration.set(WORKSPACE, **{field: value})  # type: ignore[arg-type]
    assert limit in refused.value.detail
    assert table.rows == {}


def test_the_largest_windows_are_taken(administration: PolicyAdministration) -> None:
    assert administration.set(WORKSPACE, checkpoint_window_s=THIRTY_DAYS_S, content_window_days=36_500).checkpoint_window_s == THIRTY_DAYS_S


def test_a_policy_shortens_what_the_installation_allows_and_never_lengthens_it(table: Table, administration: PolicyAdministration) -> None:
    policies = PolicyTable(table, Settings(checkpoint_window_s=10 * DAY_S))
    administration.set(WORKSPACE, checkpoint_window_s=20 * DAY_S)
    assert policies.of(WORKSPACE).checkpoint_window_s == 10 * DAY_S
    administration.set(WORKSPACE, checkpoint_window_s=5 * DAY_S)
    assert policies.of(WORKSPACE).checkpoint_window_s == 5 * DAY_S


def test_settings_beyond_the_limits_are_refused_at_start(table: Table) -> None:
    with pytest.raises(Misconfigured, match="checkpoint_window_s: from 1 to 2592000"):
        PolicyTable(table, Settings(checkpoint_window_s=THIRTY_DAYS_S + 1))


def test_a_table_that_may_lack_a_change_tells_no_policy(table: Table, administration: PolicyAdministration) -> None:
    policies = PolicyTable(table, SETTINGS)
    administration.set(WORKSPACE, mode="zdr")
    policies.of(WORKSPACE)
    table.fresh = False
    for workspace in (WORKSPACE, OTHER):
        with pytest.raises(Retriable) as refused:
            policies.of(workspace)
        assert refused.value.code == "service.not_ready"


@pytest.mark.parametrize(
    "value",
    [
        b"garbage",
        encode("workspace-config", {"workspace_id": WORKSPACE, "kind": "policy", "id": "current", "api_key": None, "policy": None}),
        encode_row(WORKSPACE, WorkspacePolicy(mode="stricter", content_window_days=1, checkpoint_window_s=1, changed_at=1)),
        encode_row(WORKSPACE, WorkspacePolicy(mode="zdr", content_window_days=1, checkpoint_window_s=0, changed_at=1)),
    ],
    ids=["garbage", "empty", "a mode of a later release", "beyond a limit"],
)
def test_a_policy_that_cannot_be_read_is_not_taken_for_none(table: Table, value: bytes) -> None:
    """It may have said that nothing is kept."""
    table.write(row_key(WORKSPACE), value)
    policies = PolicyTable(table, SETTINGS)
    with pytest.raises(Retriable):
        policies.of(WORKSPACE)
    assert policies.of(OTHER).mode == "standard"


def test_rows_read_back_as_they_were_written() -> None:
    policy = WorkspacePolicy(mode="zdr", content_window_days=1, checkpoint_window_s=2, changed_at=3)
    assert decode_row(encode_row(WORKSPACE, policy)) == policy
    assert row_key(WORKSPACE) == f"{WORKSPACE}/policy/current".encode()


def test_keys_and_policies_lie_in_one_table_and_are_no_obstacle_to_each_other(table: Table, administration: PolicyAdministration) -> None:
    _, secret = KeyAdministration(SETTINGS, write=table.write, clock=lambda: NOW).create(WORKSPACE, ["admin"])
    administration.set(WORKSPACE, mode="zdr")
    assert KeyTable(table).principal(secret, NOW).workspace_id == WORKSPACE
    assert PolicyTable(table, SETTINGS).of(WORKSPACE).mode == "zdr"


def test_a_workspace_that_is_none_has_no_policy(administration: PolicyAdministration) -> None:
    with pytest.raises(Invalid, match="workspace"):
        administration.set("ws_1", mode="zdr")
