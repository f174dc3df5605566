"""Keys to sign with: one at a time for each purpose, whoever asks; what was signed counts until its key is revoked."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from streams.custody.signers import Signers, Trust
from streams.custody.signing import NotVerified, SigningKey, opened
from streams.errors import Misconfigured, NotFound

KIND = "application/vnd.example+json"


def test_the_first_key_is_made_once_by_whoever_asks_first(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = {key.public.key_id for key in pool.map(lambda _: Signers(tmp_path).current("receipts"), range(16))}
    assert len(ids) == 1
    assert [key.key_id for key in Signers(tmp_path).trust().keys] == [*ids]


def test_each_purpose_has_a_key_of_its_own(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    assert signers.current("receipts").public != signers.current("bundles").public
    assert set(signers.trust().counting("bundles")) == {signers.current("bundles").public.key_id}


def test_private_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    signers.current("receipts")
    (path,) = (tmp_path / "keys").glob("*.pem")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(Misconfigured):
        signers.current("receipts")


def test_what_was_signed_before_a_rotation_counts_and_what_a_revoked_key_signed_does_not(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    first = signers.current("receipts")
    envelope = msgspec.json.encode(first.sign(KIND, b"{}"))
    made = signers.rotate("receipts")
    assert signers.current("receipts").public.key_id == made.key_id != first.public.key_id
    assert opened(envelope, KIND, signers.trust().counting("receipts")).payload == b"{}"
    revoked = signers.revoke(first.public.key_id)
    assert (revoked.retired_at, revoked.revoked_at) != (None, None)
    assert signers.revoke(first.public.key_id) == revoked
    with pytest.raises(NotVerified, match=r"key\.unknown"):
        opened(envelope, KIND, signers.trust().counting("receipts"))
    assert len(list((tmp_path / "keys").glob("*.pem"))) == 1


def test_a_revoked_current_key_is_followed_by_another(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    before = signers.current("bundles").public.key_id
    signers.revoke(before)
    assert signers.current("bundles").public.key_id != before


def test_a_key_that_was_never_there_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Signers(tmp_path).revoke("0" * 64)


def test_a_key_file_that_is_gone_is_not_replaced_silently(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    signers.current("receipts")
    next((tmp_path / "keys").glob("*.pem")).unlink()
    with pytest.raises(Misconfigured, match="restore it, or rotate"):
        signers.current("receipts")
    signers.rotate("receipts")
    signers.current("receipts")


def test_another_key_under_the_name_of_one_signs_nothing(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    path = tmp_path / "keys" / f"{signers.current('receipts').public.key_id}.pem"
    path.unlink()
    SigningKey.at(path)
    with pytest.raises(Misconfigured, match="holds another key"):
        signers.current("receipts")


def test_a_key_that_is_revoked_while_it_is_fetched_is_not_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signers, read = Signers(tmp_path), SigningKey.read
    before = signers.current("receipts").public.key_id

    def revoked_meanwhile(path: Path) -> SigningKey:
        if before in path.name:
            Signers(tmp_path).revoke(before)
        return read(path)

    monkeypatch.setattr(SigningKey, "read", revoked_meanwhile)
    assert signers.current("receipts").public.key_id != before
    assert not list((tmp_path / "keys").glob(f"{before}*"))


def test_no_key_is_made_that_nobody_would_read_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signers = Signers(tmp_path)
    signers.current("receipts")
    text = (tmp_path / "trust.json").read_bytes()
    monkeypatch.setattr("streams.custody.signers._TRUST_BYTES_MAX", len(text) + 10)
    with pytest.raises(Misconfigured, match="no more keys"):
        signers.rotate("receipts")
    assert (tmp_path / "trust.json").read_bytes() == text


def test_a_damaged_list_of_keys_is_said_and_nothing_is_made_over_it(tmp_path: Path) -> None:
    Signers(tmp_path).current("receipts")
    (tmp_path / "trust.json").write_text("{")
    with pytest.raises(Misconfigured):
        Signers(tmp_path).current("receipts")
    assert (tmp_path / "trust.json").read_text() == "{"


def test_what_strangers_get_reads_back_and_holds_nothing_private(tmp_path: Path) -> None:
    signers = Signers(tmp_path)
    signers.current("receipts")
    text = msgspec.json.encode(signers.trust())
    assert msgspec.json.decode(text, type=Trust) == signers.trust()
    assert b"PRIVATE" not in text
