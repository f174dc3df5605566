"""What this release supports: one row for each capability on each exact tuple, with the evidence that there is."""

from msgspec import Struct

from connectors.edge import fields as f
from connectors.edge.principal import ANY_SCOPE
from connectors.gateway.answers import Answer, plain
from connectors.gateway.bodies import SupportQuery
from connectors.gateway.call import Call
from connectors.gateway.route import Route
from connectors.gateway.service import Gateway
from connectors.support.capabilities import CAPABILITIES, NOT_OFFERED
from connectors.support.rows import CapabilityRow
from connectors.support.statement import ExactTuple
from connectors.support.support import Support
from streams.errors import Invalid

ROWS_MAX = 1000
_NAMES = (None, *CAPABILITIES, *(each.name for each in NOT_OFFERED))


class SupportView(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`release` runs here; evidence counts for `evidence_max_age_s`. `complete` is false where there are more rows."""

    release: f.Name
    evidence_max_age_s: float
    capabilities: list[CapabilityRow]
    complete: bool


async def capabilities(gateway: Gateway, call: Call, query: SupportQuery) -> Answer:
    if query.capability not in _NAMES:
        raise Invalid(f"query: capability: one of {', '.join(filter(None, _NAMES))}")
    exact = _exact(query, gateway.support.release)

    def found() -> list[CapabilityRow]:
        return _rows(gateway.support, query.capability, exact)

    rows = await gateway.in_thread(found)
    return plain(
        SupportView(
            release=gateway.support.release,
            evidence_max_age_s=gateway.support.max_age_s,
            capabilities=rows[:ROWS_MAX],
            complete=len(rows) <= ROWS_MAX,
        )
    )


def _rows(support: Support, capability: str | None, exact: ExactTuple | None) -> list[CapabilityRow]:
    if exact is None:
        return [row for row in support.rows() if capability in (None, row.capability)]
    return [support.row(each, exact) for each in CAPABILITIES.values() if capability in (None, each.name)]


def _exact(query: SupportQuery, release: str) -> ExactTuple | None:
    """The tuple that is asked about; None where none of it is given. Raises `Invalid` where a part of it is."""
    driver, provider, policy, target = query.driver, query.sandbox_provider_revision, query.policy, query.execution_target
    if driver is None or provider is None or policy is None or target is None:
        if any(each is not None for each in (*_rest(query), driver, provider, policy, target)):
            raise Invalid("query: driver, sandbox_provider_revision, policy and execution_target come together")
        return None
    return ExactTuple(
        release=query.release or release, driver=driver, sandbox_provider_revision=provider, policy=policy, execution_target=target,
        harness_revision=query.harness_revision, environment_revision=query.environment_revision,
    )  # fmt: skip


def _rest(query: SupportQuery) -> tuple[str | None, ...]:
    return query.release, query.harness_revision, query.environment_revision


ROUTES = (
    Route(
        method="GET", path="/v1/support/capabilities", name="support_capabilities",
        summary="What is supported, each exact tuple with its evidence", handler=capabilities, scope=ANY_SCOPE,
        query=SupportQuery, answer=SupportView, position=False,
    ),
)  # fmt: skip
