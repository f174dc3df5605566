"""Targets that the catalogue of an installation qualifies: evidence as if a journey had run, and receipts issued on it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from connectors.support.journeys import record
from connectors.support.qualifications import qualify
from connectors.support.statement import Evidence, ExactTuple
from connectors.support.support import Support
from connectors.support.trust import change_trust
from streams.capsules.model import Target
from streams.clock import now_us
from streams.custody.signers import Signers
from streams.custody.signing import SigningKey
from streams.settings import Settings
from tests.support.capsule_world import target as made_up
from tests.support.capsules import Document


def proven(settings: Settings, driver: str = "driver/1", *, outcome: Any = "passed", ago: timedelta = timedelta()) -> None:
    """As if the journey had run."""
    folder, key = settings.support_path, SigningKey.generate()
    change_trust(folder / "trusted.json", public=key.public.keyval.public)
    exact = ExactTuple(
        release=Support(settings).release, driver=driver, sandbox_provider_revision="s", policy="standard", execution_target="local"
    )  # fmt: skip
    record(
        folder / "statements.jsonl", key, "capsule_import", exact, outcome, Evidence(test="journey"), clock=lambda: datetime.now(UTC) - ago
    )  # fmt: skip


def asked(**changes: Any) -> Document:
    target = made_up(**changes)
    del target["qualification_receipt"]
    return target


def qualified(settings: Settings, days: float = 7, **changes: Any) -> Target:
    return qualify(Support(settings), Signers(settings.signers_path), asked(**changes), now=now_us(), days=days)


def builtins(target: Target) -> Document:
    return dict(msgspec.to_builtins(target))
