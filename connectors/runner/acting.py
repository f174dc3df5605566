"""An action at a provider: asked for, told before it is sent, sent under the identity of its effect, settled by what is known of it.

After a death between sending and receipt nobody knows whether it happened. Then the provider is asked: what it has under that identity
settles the effect (`provider_lookup`). What it has not may still be on its way, so it is sent again under the very same identity, and
the provider's own mechanism makes one of the two (`idempotency_mechanism`). Where the provider has neither, the effect stays
indeterminate, for everybody to see, until somebody who may decides.
"""

import hashlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from connectors.runner.crash import Crash, Phase
from connectors.runner.lease import Lease
from connectors.runner.plan import Act
from connectors.runner.progress import NOT_PERFORMED, OPEN, Effect, Progress
from connectors.runner.service import Held, Notice
from session_streams import ApiError, Client, ConnectionFailed, NotFound, Retries

_POLL_S: Final = 0.05
LOOKUP: Final = "provider_lookup"
MECHANISM: Final = "idempotency_mechanism"
_NEVER_SENT: Final = "eff_none"
_NO_IDENTITIES: Final = "the provider has no identities to ask for"


class Indeterminate(Exception):
    """Nobody can tell whether the provider has done it, because of `cause`."""

    def __init__(self, effect_id: str, cause: str) -> None:
        super().__init__(f"{effect_id}: {cause}")
        self.effect_id, self.cause = effect_id, cause


class Unanswered(Exception):
    """The provider did not say; it may have acted."""


class NoProvider(Exception):
    """What stands at the address does not answer as a provider would."""


class Provider:
    """One that takes actions over HTTP: `POST /v1/actions` under an Idempotency-Key, `GET /v1/actions/<key>` to look one up."""

    def __init__(self, url: str, api_key: str = "none", *, knows_identities: bool = True, timeout_s: float = 10.0) -> None:
        """`knows_identities`: it does an action once under one key, and can be asked for it."""
        self.knows_identities = knows_identities
        self._client = Client(url, api_key, timeout_s=timeout_s, retries=Retries(total_s=0))

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Provider":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def require(self) -> None:
        """Asks for an action that nobody has sent, before anything depends on the answer. Raises `NoProvider`."""
        try:
            self.look_up(_NEVER_SENT)
        except Unanswered as error:
            if self.knows_identities or isinstance(error.__cause__, ConnectionFailed):
                raise NoProvider(str(error)) from error

    def send(self, effect_id: str, act: Act) -> bytes:
        """Its receipt. Raises `Unanswered`."""
        body = {"action": act.digest, "request": act.action.text.decode()}
        try:
            return self._client.request("POST", "/v1/actions", body, key=effect_id).body
        except (ApiError, ConnectionFailed) as error:
            raise Unanswered(str(error)) from error

    def look_up(self, effect_id: str) -> bytes | None:
        """The receipt of what was done under this identity; None: nothing was, so far. Raises `Unanswered`."""
        try:
            return self._client.request("GET", f"/v1/actions/{effect_id}").body
        except NotFound:
            return None
        except (ApiError, ConnectionFailed) as error:
            raise Unanswered(str(error)) from error


class Acting:
    """The actions of one attempt."""

    def __init__(
        self, held: Held, progress: Progress, provider: Provider, lease: Lease, crash: Crash, *,
        sleep: Callable[[float], None] = time.sleep, notice: Notice = lambda _, __: None,
    ) -> None:  # fmt: skip
        self._held, self._progress, self._provider, self._lease, self._crash = held, progress, provider, lease, crash
        self._sleep, self._notice = sleep, notice

    def do(self, act: Act) -> str:
        """How it was settled: receipt, denied, or the kind of evidence. Raises `Indeterminate` and `Fenced`."""
        approval_id = None
        if act.action.approval:
            approval_id, decision = self._decided(act)
            if decision == "denied":
                return decision
        effect = self._progress.effects.get(act.index)
        if effect is not None and effect.outcome != NOT_PERFORMED:
            return "known" if effect.outcome is not None else self._settle(act, effect, "an attempt before this one ended before it knew")
        effect = self._dispatched(act, approval_id, again=effect is not None)
        self._crash.reached(Phase.DISPATCHED, act.index)
        self._lease.require()
        try:
            receipt = self._provider.send(effect.effect_id, act)
        except Unanswered as error:
            return self._settle(act, effect, str(error))
        self._crash.reached(Phase.SENT, act.index)
        self._tell(act, effect, "receipt", {"receipt_digest": _digest(receipt), "outcome": "succeeded", "content": _text(receipt)})
        return "receipt"

    def _decided(self, act: Act) -> tuple[str, str]:
        """The approval of this very action, and what was decided about it."""
        if act.index not in self._progress.approvals:
            asked = {"action_digest": act.digest, "content": {"asks": act.action.text.decode()}}
            answer = self._held.tell(f"{self._held.path}/approvals", asked, f"{act.index}/asked")
            self._progress.approvals[act.index] = (answer["approval_id"], OPEN)
            self._crash.reached(Phase.ASKED, act.index)
        approval_id, decision = self._progress.approvals[act.index]
        if decision == OPEN:
            where = f"{self._held.path}/approvals/{approval_id}/decide"
            self._notice("asks", {"step": act.index, "answer": where, "action_digest": act.digest})
        while self._progress.approvals[act.index][1] == OPEN:
            self._lease.require()
            self._held.catch_up()
            self._sleep(_POLL_S)
        self._crash.reached(Phase.DECIDED, act.index)
        return self._progress.approvals[act.index]

    def _dispatched(self, act: Act, approval_id: str | None, *, again: bool) -> Effect:
        body = {
            "provider": act.action.provider, "request_digest": _digest(act.action.text), "action_digest": act.digest,
            "content": {"request": act.action.text.decode()}, **({} if approval_id is None else {"approval_id": approval_id}),
        }  # fmt: skip
        answer = self._held.tell(f"{self._held.path}/effects", body, f"{act.index}/dispatched{'/again' if again else ''}")
        effect = self._progress.effects[act.index] = Effect(answer["effect_id"])
        return effect

    def _settle(self, act: Act, effect: Effect, why: str) -> str:
        """By evidence, where somebody died before a receipt, or the provider did not answer: that is what `why` tells."""
        if not self._provider.knows_identities:
            raise Indeterminate(effect.effect_id, f"{why}, and {_NO_IDENTITIES}")
        self._lease.require()
        try:
            evidence, receipt = LOOKUP, self._provider.look_up(effect.effect_id)
            if receipt is None:
                evidence, receipt = MECHANISM, self._provider.send(effect.effect_id, act)
        except Unanswered as error:
            raise Indeterminate(effect.effect_id, str(error)) from error
        self._crash.reached(Phase.SENT, act.index)
        told = {"evidence_kind": evidence, "outcome": "succeeded", "receipt_digest": _digest(receipt), "content": _text(receipt)}
        self._tell(act, effect, "reconcile", told)
        return evidence

    def _tell(self, act: Act, effect: Effect, how: str, body: dict[str, Any]) -> None:
        self._held.tell(f"{self._held.path}/effects/{effect.effect_id}/{how}", body, f"{act.index}/{how}")
        effect.outcome = "succeeded"
        self._crash.reached(Phase.SETTLED, act.index)


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _text(receipt: bytes) -> dict[str, str]:
    return {"receipt": receipt.decode(errors="replace")}
