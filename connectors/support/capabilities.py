"""What there is to prove, by which journey, and what this software does not offer at all.

"Collaboration, steering, checkpoints, native continuation, portable rebuild, and post-ready replacement are tuple-specific
capabilities" (Session execution graph, adapter fidelity). What is not offered stands beside them, with the refusal that asking for
it meets.
"""

from typing import Final, Literal

from msgspec import Struct, structs

from connectors.support.statement import ExactTuple
from streams.session import refusals

Posture = Literal["supported", "alpha", "unobserved", "not_offered"]

REPLACEMENT: Final = "post_ready_replacement"


class Capability(Struct, frozen=True, kw_only=True):
    """`posture` is that of a tuple on which its `journey` has been seen to pass lately. `of_harness`: its evidence holds for the
    harness and environment revision of the journey only. `refusal`: what is answered where it is not there."""

    name: str
    journey: str
    posture: Literal["supported", "alpha"] = "supported"
    hosting: Literal["hosted"] | None = None
    of_harness: bool = False
    refusal: str | None = None

    def coordinates(self, given: ExactTuple) -> ExactTuple | None:
        """Those that its evidence depends on; None where one of them is not given."""
        if not self.of_harness:
            return structs.replace(given, harness_revision=None, environment_revision=None)
        return None if None in (given.harness_revision, given.environment_revision) else given


class NotOffered(Struct, frozen=True):
    """`refusal` is None where there is nothing that could be asked for."""

    name: str
    refusal: str | None
    detail: str


CAPABILITIES: Final = {
    each.name: each
    for each in (
        Capability(name="collaboration", journey="child-work"),
        Capability(name="steering", journey="steered-run", refusal=refusals.STEERING_UNAVAILABLE),
        Capability(name="checkpoints", journey="checkpoint-restore", of_harness=True),
        Capability(name="native_continuation", journey="native-resume", of_harness=True),
        Capability(name="portable_rebuild", journey="event-log-rebuild"),
        Capability(
            name=REPLACEMENT, journey="post-ready-replacement", of_harness=True, refusal=refusals.REPLACEMENT_UNAVAILABLE
        ),
        Capability(name="capsule_import", journey="session-turn", posture="alpha", hosting="hosted"),
    )
}  # fmt: skip
NOT_OFFERED: Final = (
    NotOffered("handoff", refusals.HANDOFF_UNAVAILABLE, "switching a thread of a session to another harness"),
    NotOffered("unsupported_steering", refusals.STEERING_UNAVAILABLE, "steering a Run that is over, or is not there"),
    NotOffered("vendor_collaboration", None, "representing the whole of a vendor's private collaboration"),
)
