"""The catalogue as rows: each capability on each exact tuple, with posture, evidence and what this deployment lacks for it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from connectors.support.capabilities import CAPABILITIES, NOT_OFFERED, Capability, NotOffered, Posture
from connectors.support.catalogue import Catalogue
from connectors.support.statement import ExactTuple


class EvidenceView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which journey passed, on which release and when. `statement` is the digest of what was signed, `key_id` names who signed."""

    journey: str
    release: str
    observed_at: datetime
    statement: str
    key_id: str


class Readiness(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of this deployment. `missing`: evidence_missing, evidence_failed, evidence_stale, evidence_ahead, coordinates_missing,
    release_differs (it runs another release) or not_offered."""

    ready: bool
    missing: list[str] = []


class CapabilityRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`posture` is `unobserved` where nothing proves it now; `declared` is what it is where something does. `tuple` is null
    where nothing was seen of any, and of what is not offered. `refusal` is the code that asking for it meets where it is not
    there; null where nothing can be asked for, or something less is given instead."""

    capability: str
    posture: Posture
    declared: Posture
    hosting: Literal["hosted"] | None
    tuple: ExactTuple | None
    journey: str | None
    evidence: EvidenceView | None
    readiness: Readiness
    latest_proven_release: str | None
    refusal: str | None
    detail: str | None


def rows_of(catalogue: Catalogue, release: str, now: int, max_age_s: float) -> Iterator[CapabilityRow]:
    """Every capability on each tuple that was seen, and on the same tuples under `release`, the one that runs here."""
    for capability in CAPABILITIES.values():
        seen = catalogue.tuples(capability)
        for exact in dict.fromkeys([each for one in seen for each in (one, structs.replace(one, release=release))]):
            yield row_of(catalogue, capability, exact, release, now, max_age_s)
        if not seen:
            yield _row(catalogue, capability, None, None, ["evidence_missing"])
    yield from map(_row_not_offered, NOT_OFFERED)


def row_of(catalogue: Catalogue, capability: Capability, exact: ExactTuple, release: str, now: int, max_age_s: float) -> CapabilityRow:
    """One capability on exactly this tuple."""
    current, reason = catalogue.judged(capability, exact, now, max_age_s)
    missing = [*([] if reason is None else [reason]), *([] if exact.release == release else ["release_differs"])]
    evidence = None if current is None else EvidenceView(
        journey=current.statement.journey, release=current.statement.tuple.release, observed_at=current.statement.observed_at,
        statement=current.digest, key_id=current.key_id,
    )  # fmt: skip
    return _row(catalogue, capability, exact, evidence, missing)


def _row(
    catalogue: Catalogue, capability: Capability, exact: ExactTuple | None, evidence: EvidenceView | None, missing: list[str]
) -> CapabilityRow:
    return CapabilityRow(
        capability=capability.name,
        posture="unobserved" if evidence is None else capability.posture,
        declared=capability.posture,
        hosting=capability.hosting,
        tuple=exact,
        journey=capability.journey,
        evidence=evidence,
        readiness=Readiness(ready=not missing, missing=missing),
        latest_proven_release=catalogue.latest_proven_release(capability, exact),
        refusal=capability.refusal,
        detail=None,
    )


def _row_not_offered(what: NotOffered) -> CapabilityRow:
    return CapabilityRow(
        capability=what.name, posture="not_offered", declared="not_offered", hosting=None, tuple=None, journey=None, evidence=None,
        readiness=Readiness(ready=False, missing=["not_offered"]), latest_proven_release=None, refusal=what.refusal, detail=what.detail,
    )  # fmt: skip
