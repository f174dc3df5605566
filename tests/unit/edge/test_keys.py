"""API keys: who a presented secret is, from when and until when, and what a row of the table holds."""

import pytest

from connectors.edge.keys import ApiKey, KeyAdministration, KeyTable, decode_row, digest_of, encode_row, new_secret, row_key
from connectors.edge.principal import Principal
from streams.errors import Invalid, NotFound, NotPermitted, Retriable
from streams.settings import Settings

WORKSPACE = "ws_" + "a" * 32
NOW = 1_000_000_000


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
def administration(table: Table) -> KeyAdministration:
    return KeyAdministration(Settings(), write=table.write, clock=lambda: NOW)


def refusal(table: Table, secret: str, now: int = NOW) -> str:
    with pytest.raises(NotPermitted) as refused:
        KeyTable(table).principal(secret, now)
    return refused.value.code


def test_a_key_is_known_by_its_secret_and_only_its_digest_is_kept(table: Table, administration: KeyAdministration) -> None:
    key, secret = administration.create(WORKSPACE, ["sessions:read"], kind="runner", subject_id="subj_" + "1" * 32)
    assert KeyTable(table).principal(secret, NOW) == Principal(
        WORKSPACE, key.key_id, "runner", frozenset({"sessions:read"}), "subj_" + "1" * 32
    )
    kept = b"".join(table.rows.values()) + b"".join(table.rows)
    assert secret.encode() not in kept
    assert secret.removeprefix("sks_").encode() not in kept
    assert digest_of(secret) in kept


def test_secrets_have_32_random_bytes_and_a_prefix_that_scanners_know() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("sks_") and len(secret) == 47 for secret in secrets)


def test_a_key_may_be_presented_under_the_prefix_of_other_clients(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"])
    presented = secret.replace("sks_", "titen_sk_", 1)
    assert len(presented) == 52
    assert KeyTable(table).principal(presented, NOW) == KeyTable(table).principal(secret, NOW)
    for wrong in ("titen_sk_" + secret, "sks_titen_sk_" + secret[4:], "titen_" + secret, presented + "x", presented.upper()):
        assert refusal(table, wrong) == "auth.invalid"


def test_a_key_is_an_agent_of_its_own_unless_it_shares_one(table: Table, administration: KeyAdministration) -> None:
    shared_id = "agent_" + "3" * 32
    own, secret = administration.create(WORKSPACE, ["admin"])
    sharing = [administration.create(WORKSPACE, ["admin"], agent_id=shared_id)[1] for _ in range(2)]
    keys = KeyTable(table)
    assert keys.principal(secret, NOW).agent_id == "agent_" + own.key_id.removeprefix("key_")
    assert [keys.principal(each, NOW).agent_id for each in sharing] == [shared_id] * 2


@pytest.mark.parametrize("name", ["owner", "mia_li_3668", "agent_x", "agent_" + "A" * 32, "agent_" + "3" * 32 + "\n", ""])
def test_no_name_of_anybody_can_stand_in_the_topic_as_an_agent(table: Table, administration: KeyAdministration, name: str) -> None:
    with pytest.raises(Invalid):
        administration.create(WORKSPACE, ["admin"], agent_id=name)
    assert table.rows == {}


def test_an_unknown_or_misshapen_secret_is_refused_alike(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"])
    for wrong in (new_secret(), secret[:-1], secret + "x", "", "sks_", "sks_" + "é" * 43):
        assert refusal(table, wrong) == "auth.invalid"


def test_a_key_holds_from_its_not_before_until_its_expiry(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"], not_before=NOW, expires_at=NOW + 10)
    assert refusal(table, secret, NOW - 1) == "auth.not_yet_valid"
    assert refusal(table, secret, NOW + 10) == "auth.expired"
    assert KeyTable(table).principal(secret, NOW + 9).workspace_id == WORKSPACE


def test_a_revocation_is_seen_with_the_next_table(table: Table, administration: KeyAdministration) -> None:
    key, secret = administration.create(WORKSPACE, ["admin"])
    known = KeyTable(table)
    known.principal(secret, NOW)
    revoked = ApiKey(**{name: getattr(key, name) for name in key.__struct_fields__ if name != "revoked_at"}, revoked_at=NOW)
    table.write(row_key(revoked), encode_row(revoked))
    with pytest.raises(NotPermitted) as refused:
        known.principal(secret, NOW)
    assert refused.value.code == "auth.revoked"


def test_a_row_that_is_gone_opens_nothing(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"])
    table.rows = {}
    assert refusal(table, secret) == "auth.invalid"


def test_a_table_that_may_lack_a_revocation_lets_nobody_in(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"])
    table.fresh = False
    with pytest.raises(Retriable):
        KeyTable(table).principal(secret, NOW)


def test_a_row_that_cannot_be_read_does_not_keep_the_others_out(table: Table, administration: KeyAdministration) -> None:
    _, secret = administration.create(WORKSPACE, ["admin"])
    table.write(b"ws/api_key/broken", b"\x00\x00\x00\x00\x01garbage")
    assert KeyTable(table).principal(secret, NOW).holds("sessions:write")


def test_rows_read_back_as_they_were_written(administration: KeyAdministration) -> None:
    key, _ = administration.create(WORKSPACE, ["sessions:read", "admin"], not_before=1, expires_at=2)
    assert decode_row(encode_row(key)) == key
    assert row_key(key) == f"{WORKSPACE}/api_key/{key.key_id}".encode()


@pytest.mark.parametrize(
    ("workspace_id", "scopes", "more"),
    [
        (WORKSPACE, [], {}),
        (WORKSPACE, ["sessions:everything"], {}),
        (WORKSPACE, ["admin"], {"kind": "robot"}),
        ("ws_1", ["admin"], {}),
        (WORKSPACE, ["admin"], {"subject_id": "mia_li"}),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(
    table: Table, administration: KeyAdministration, workspace_id: str, scopes: list[str], more: dict[str, str]
) -> None:
    with pytest.raises(Invalid):
        administration.create(workspace_id, scopes, **more)  # type: ignore[arg-type]
    assert table.rows == {}


def test_admin_holds_every_scope_of_its_workspace_and_sees_no_other() -> None:
    admin = Principal(WORKSPACE, "key_" + "1" * 32, "service", frozenset({"admin"}))
    admin.require("sessions:import")
    with pytest.raises(NotFound):
        admin.require_sight_of("sess_" + "1" * 32, "ws_" + "b" * 32, None)


def test_a_restricted_principal_sees_its_subject_only() -> None:
    restricted = Principal(WORKSPACE, "key_" + "1" * 32, "service", frozenset({"admin"}), "subj_" + "1" * 32)
    restricted.require_sight_of("sess_" + "1" * 32, WORKSPACE, "subj_" + "1" * 32)
    for other in (None, "subj_" + "2" * 32):
        with pytest.raises(NotFound):
            restricted.require_sight_of("sess_" + "1" * 32, WORKSPACE, other)
