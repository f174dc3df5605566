"""Qualifications of import targets: on evidence only, signed, for a while, and withdrawn; and what keys that change do to imports."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from connectors.cli.main import app
from connectors.edge.capsule_keys import SignerKeys
from connectors.edge.capsule_statements import SigningUnavailable
from connectors.edge.capsules import CapsuleDesk
from connectors.support.qualifications import WITHDRAWN, WithdrawnReceipts, withdraw
from streams.capsules.digests import receipt_digest, target_digest
from streams.capsules.model import Target, microseconds
from streams.clock import now_us
from streams.custody.signers import Signers
from streams.errors import Invalid
from streams.settings import Settings
from tests.support.capsule_world import Idle, compatible, idle_session
from tests.support.capsules import Document
from tests.support.gateway import World, world
from tests.support.qualifying import asked, builtins, proven, qualified

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway with keys and catalogue of its own folder."""
    with world(tmp_path_factory.mktemp("gateway")) as made:
        desk = CapsuleDesk(made.keyring, SignerKeys(made.settings.signers_path), WithdrawnReceipts(made.settings.support_path).__contains__)
        made.gateway.capsules = desk
        yield made


class TestIssuing:
    def test_a_driver_that_nobody_saw_is_not_qualified(self, tmp_path: Path) -> None:
        settings = Settings(data_dir=tmp_path)
        with pytest.raises(Invalid, match="unobserved"):
            qualified(settings)
        proven(settings, "another-driver")
        with pytest.raises(Invalid, match="unobserved"):
            qualified(settings)
        proven(settings, outcome="failed")
        with pytest.raises(Invalid, match="unobserved"):
            qualified(settings)

    def test_a_receipt_covers_its_target_and_ends_with_its_evidence(self, tmp_path: Path) -> None:
        settings = Settings(data_dir=tmp_path)
        proven(settings, ago=timedelta(days=28))
        target = qualified(settings)
        receipt = target.qualification_receipt
        assert (receipt.target_digest, receipt.receipt_digest) == (target_digest(target), receipt_digest(receipt))
        assert receipt.qualified_capabilities == ("checkpoint_import",)
        left = microseconds(receipt.valid_until) - now_us()
        assert DAY_US < left <= 2 * DAY_US

    def test_what_is_no_target_is_told_so(self, tmp_path: Path) -> None:
        proven(Settings(data_dir=tmp_path))
        with pytest.raises(Invalid, match="target"):
            qualified(Settings(data_dir=tmp_path), importer_id="")


class TestImports:
    @pytest.fixture
    def idle(self, served: World) -> Idle:
        return idle_session(served.client())

    @pytest.fixture
    def target(self, served: World) -> Document:
        proven(served.settings)
        return builtins(qualified(served.settings))

    def transfer(self, idle: Idle, target: Document) -> Document:
        return dict(idle.created(compatible_importers=[compatible(target)])["transfer"])

    def test_an_import_into_a_target_that_the_catalogue_qualified(self, idle: Idle, target: Document) -> None:
        assert idle.outcome(idle.import_of(self.transfer(idle, target), target=target)) == "imported"

    def test_a_qualification_that_is_withdrawn(self, served: World, idle: Idle, target: Document) -> None:
        transfer = self.transfer(idle, target)
        withdraw(served.settings.support_path / WITHDRAWN, target["qualification_receipt"]["receipt_digest"])
        assert idle.outcome(idle.import_of(transfer, target=target)) == "target_unqualified"

    @pytest.mark.parametrize(
        ("purpose", "reason"), [("retention", "source_projection_unavailable"), ("qualifications", "target_unqualified")]
    )
    def test_keys_that_follow_each_other_and_one_that_is_revoked(
        self, served: World, idle: Idle, target: Document, purpose: Any, reason: str
    ) -> None:
        signers, transfer = Signers(served.settings.signers_path), self.transfer(idle, target)
        before = signers.current(purpose).public.key_id
        signers.rotate(purpose)
        assert idle.outcome(idle.import_of(transfer, target=target)) == "imported"
        signers.revoke(before)
        assert idle.outcome(idle.import_of(transfer, target=target)) == reason

    def test_keys_that_cannot_be_read(self, served: World, idle: Idle, target: Document) -> None:
        transfer, trust = self.transfer(idle, target), served.settings.signers_path / "trust.json"
        before = trust.read_bytes()
        for broken in (b"{", b"[]"):
            trust.write_bytes(broken)
            try:
                assert idle.outcome(idle.import_of(transfer, target=target)) == "projector_unavailable"
            finally:
                trust.write_bytes(before)

    def test_a_private_key_that_is_gone(self, served: World, idle: Idle, target: Document) -> None:
        transfer, signers = self.transfer(idle, target), Signers(served.settings.signers_path)
        path = served.settings.signers_path / "keys" / f"{signers.current('retention').public.key_id}.pem"
        before = path.read_bytes()
        path.unlink()
        try:
            assert idle.outcome(idle.import_of(transfer, target=target)) == "projector_unavailable"
            with pytest.raises(SigningUnavailable):
                served.gateway.capsules.keys.sign("retention", b"x")
        finally:
            path.touch(0o600)
            path.write_bytes(before)


class TestWithdrawing:
    def test_a_list_that_cannot_be_read_qualifies_nothing(self, tmp_path: Path) -> None:
        receipts = WithdrawnReceipts(tmp_path)
        assert "sha256:1" not in receipts
        withdraw(tmp_path / WITHDRAWN, "sha256:1")
        assert "sha256:1" in receipts
        assert "sha256:2" not in receipts
        (tmp_path / WITHDRAWN).write_text("{")
        assert "sha256:2" in receipts

    def test_on_the_command_line(self, tmp_path: Path) -> None:
        settings = Settings(data_dir=tmp_path)
        proven(settings)
        file = tmp_path / "target.json"
        file.write_text(json.dumps(asked()))
        run = CliRunner()
        shown = run.invoke(app, ["support", "qualify", str(file), "--data-dir", str(tmp_path)])
        assert shown.exit_code == 0, shown.output
        target = msgspec.json.decode(shown.stdout, type=Target)
        digest = target.qualification_receipt.receipt_digest
        told = run.invoke(app, ["support", "withdraw", digest, "--data-dir", str(tmp_path), "--json"])
        assert (told.exit_code, json.loads(told.stdout)) == (0, {"withdrawn": [digest]})
        assert digest in WithdrawnReceipts(settings.support_path)
