"""A principal's request becomes a command: named, sealed, without a single outside identifier in clear.

- Ids are derived from workspace, session and Idempotency-Key, so a retry makes the same command and the same events.
- Content keeps its JSON text; it is sealed here, before anything leaves the process, or left out where the session's
  policy says so (zero data retention).
- Outside ids of subjects and actors become pseudonyms. Only a write makes a mapping, and before its command is sent.
- Nothing is sealed for a session whose pinned policy is not known (`SessionFacts`).

The keyring blocks: a caller on an event loop asks `needs_keyring` first, and goes to a thread where it says so.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, structs

from connectors.edge.policies import PolicyRequest
from connectors.edge.principal import Principal
from streams.clock import now_us
from streams.custody.cache import BoundedCache
from streams.custody.claim_checks import LargeText
from streams.custody.keyring import Keyring
from streams.custody.sealing import CONTENT_BYTES_MAX, Sealer, SealItem, content_expiry_day
from streams.errors import Invalid, NotPermitted, Retriable
from streams.log.record import encode_draft
from streams.projections.sessions import SessionRow
from streams.session.commands import Command, Kind, Report
from streams.session.events import NO_CONTENT, OMITTED, Attributes, Content, Draft, Link
from streams.session.ids import derive_command_id, derive_from_command, derive_keyed, derive_session_id, event_ids, request_digest
from streams.session.words import ZDR

SEALED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of sealed content in one command."""
_OMITTED: Final = Content(state=OMITTED)


class SessionFacts(Struct, frozen=True, gc=False, kw_only=True):
    """What the edge must know of a session; pinned at creation, so it may be remembered for ever."""

    session_id: str
    workspace_id: str
    subject_id: str | None
    policy_mode: str
    content_window_days: int
    checkpoint_window_s: int | None = None
    """Seconds; None where none was pinned."""


def facts_of_row(row: SessionRow) -> SessionFacts:
    """Raises `Retriable` for a session whose pinned policy is not known: nothing is sealed for it."""
    if row.policy_mode is None or row.content_window_days is None:
        raise Retriable(f"the policy of session {row.session_id} is not known", code="service.unavailable")
    return SessionFacts(
        session_id=row.session_id,
        workspace_id=row.workspace_id,
        subject_id=row.subject_id,
        policy_mode=row.policy_mode,
        content_window_days=row.content_window_days,
        checkpoint_window_s=row.checkpoint_window_s,
    )


class Incoming(Struct, frozen=True, gc=False, kw_only=True):
    """The request that a command is made of. `path` is without its query, `body` as it came."""

    principal: Principal
    idempotency_key: str
    method: str
    path: str
    body: bytes


class NewEvent(Struct, frozen=True, gc=False, kw_only=True):
    """An event as a route or a body gives it. `actor` is an outside id; `content` is JSON text; times in microseconds."""

    type: str
    thread_id: str | None = None
    turn_id: str | None = None
    run_id: str | None = None
    attempt_generation: int | None = None
    native_task_id: str | None = None
    actor: str | None = None
    occurred_at: int | None = None
    links: tuple[Link, ...] = ()
    attributes: Attributes | None = None
    content: bytes | None = None


class Naming(Struct, frozen=True, gc=False):
    """The ids of what a command makes."""

    command_id: str

    def of(self, prefix: str, index: int = 0) -> str:
        """The id of the `index`-th thing of its kind that the command makes."""
        return derive_from_command(prefix, self.command_id, index)


class Composed(Struct, frozen=True, gc=False):
    """A command and the encoded bodies of its drafts, in order; `texts` are to be stored before it is sent."""

    command: Command
    bodies: tuple[bytes, ...]
    texts: tuple[LargeText, ...] = ()


def _sealed_bytes(contents: Iterable[Content]) -> int:
    return sum([len(content.ciphertext or b"") for content in contents])


def _worker(principal: Principal, kind: Kind, report: Report | None) -> tuple[str, ...]:
    """Who asks as a worker: what one attempt was told is no answer for another, which would take what it did for its own."""
    if report is not None:
        return principal.principal_id, report.run_id, str(report.generation), report.native_task_id or ""
    return (principal.principal_id,) if kind in (Kind.CLAIM, Kind.REPLACE) else ()


class CommandComposer:
    """Thread-safe. Every method but `knows` and `needs_keyring` may block on the keyring, and raise `KeyringUnavailable`."""

    def __init__(
        self, keyring: Keyring, sealer: Sealer, *, timeout_s: float, cache_seconds: float, clock: Callable[[], int] = now_us
    ) -> None:
        """`timeout_s` is how long a command may take until it is refused; `cache_seconds` how long pseudonyms are kept."""
        self._keyring, self._sealer, self._clock = keyring, sealer, clock
        self._timeout_us = int(timeout_s * 1_000_000)
        self._identity_keys: dict[str, bytes] = {}
        self._pseudonyms: BoundedCache[tuple[str, str], str] = BoundedCache(seconds=cache_seconds, max_entries=100_000)
        self._warm_s = cache_seconds / 2
        self._warm: OrderedDict[tuple[str, str], float] = OrderedDict()

    def knows(self, workspace_id: str) -> bool:
        """Whether ids can be derived without asking the keyring."""
        return workspace_id in self._identity_keys

    def seals(self, facts: SessionFacts, events: Sequence[NewEvent]) -> bool:
        """Whether composing would seal something: it then finds out whether that is erased."""
        return facts.policy_mode != ZDR and any(event.content is not None for event in events)

    def forget_names(self) -> None:
        """Drop cached pseudonyms: an erasure has ended what some stood for."""
        self._pseudonyms.clear()

    def needs_keyring(self, facts: SessionFacts, events: Sequence[NewEvent]) -> bool:
        """Whether composing would (nearly certainly) ask the keyring. Never blocks."""
        if not self.knows(facts.workspace_id) or any(event.actor is not None for event in events):
            return True
        if all(event.content is None for event in events):
            return False
        until = self._warm.get((facts.session_id, content_expiry_day(self._clock(), facts.content_window_days)))
        return until is None or time.monotonic() >= until

    def subject(self, principal: Principal, outside_id: str | None) -> str | None:
        """The pseudonym of a new session's subject. A key restricted to a subject makes sessions of that one only.

        Raises `NotPermitted` (auth.subject).
        """
        if principal.subject_id is None:
            return None if outside_id is None else self._keyring.pseudonym(principal.workspace_id, "subject", outside_id, create=True)
        if outside_id is not None:
            known = self._keyring.pseudonym(principal.workspace_id, "subject", outside_id, create=False)
            if known != principal.subject_id:
                raise NotPermitted("this key is restricted to another subject", code="auth.subject")
        return principal.subject_id

    def session_id(self, incoming: Incoming) -> str:
        """The id of the session that the request creates."""
        principal = incoming.principal
        return derive_session_id(
            self._identity_key(principal.workspace_id), principal.workspace_id, principal.principal_id, incoming.idempotency_key
        )

    def naming(self, facts: SessionFacts, incoming: Incoming) -> Naming:
        identity_key = self._identity_key(facts.workspace_id)
        return Naming(derive_command_id(identity_key, facts.workspace_id, facts.session_id, incoming.idempotency_key))

    def upload_id(self, facts: SessionFacts, incoming: Incoming) -> str:
        """Of the bytes that a principal uploads under a key: nobody takes another's name beforehand."""
        # No caller's key has a line break in it.
        own = structs.replace(incoming, idempotency_key=f"{incoming.idempotency_key}\n{incoming.principal.principal_id}")
        return self.naming(facts, own).of("snap")

    def claim_digest(self, incoming: Incoming) -> str:
        """Which claim by lane this is, wherever it leads: 32 hex digits, keyed."""
        principal = incoming.principal
        made = derive_keyed(
            "claim", self._identity_key(principal.workspace_id), principal.workspace_id, principal.principal_id, incoming.idempotency_key
        )
        return made.removeprefix("claim_")

    def policy_request(self, incoming: Incoming) -> PolicyRequest:
        """By what a request that replaces the workspace's policy is known again."""
        principal = incoming.principal
        identity_key = self._identity_key(principal.workspace_id)
        asked = identity_key, incoming.method, incoming.path
        return PolicyRequest(
            request_digest(*asked, incoming.idempotency_key.encode(), principal.principal_id), request_digest(*asked, incoming.body)
        )

    def compose(
        self,
        incoming: Incoming,
        facts: SessionFacts,
        events: Sequence[NewEvent],
        *,
        naming: Naming | None = None,
        kind: Kind = Kind.APPEND,
        report: Report | None = None,
        expected_sequence: int | None = None,
        lease_ms: int | None = None,
        importing: bool = False,
        claiming: bool = False,
    ) -> Composed:
        """The command, its content sealed and its secrets durable. `naming` is the request's, where it is at hand. Where the caller
        can store texts (`claiming`), content that is too large for a command is claimed by it.

        Raises `Invalid` (also request.too_large), `ContentUnavailable` (the session or its subject is erased).
        """
        issued_at = self._clock()
        command_id = (naming or self.naming(facts, incoming)).command_id
        identity_key = self._identity_key(facts.workspace_id)
        ids = list(map(event_ids(command_id), range(len(events))))
        contents, texts = self._contents(facts, ids, events, content_expiry_day(issued_at, facts.content_window_days), claiming)
        drafts = [
            Draft(
                event_id=own_id,
                session_id=facts.session_id,
                type=event.type,
                workspace_id=facts.workspace_id,
                thread_id=event.thread_id,
                turn_id=event.turn_id,
                run_id=event.run_id,
                attempt_generation=event.attempt_generation,
                native_task_id=event.native_task_id,
                actor_id=None if event.actor is None else self._actor(facts.workspace_id, event.actor),
                subject_id=facts.subject_id,
                command_id=command_id,
                occurred_at=event.occurred_at,
                links=event.links,
                attributes=event.attributes,
                content=content,
            )
            for own_id, event, content in zip(ids, events, contents, strict=True)
        ]
        command = Command(
            command_id=command_id,
            session_id=facts.session_id,
            workspace_id=facts.workspace_id,
            kind=kind,
            principal_id=incoming.principal.principal_id,
            request_digest=request_digest(
                identity_key, incoming.method, incoming.path, incoming.body, *_worker(incoming.principal, kind, report)
            ),
            issued_at=issued_at,
            not_after=issued_at + self._timeout_us,
            expected_sequence=expected_sequence,
            report=report,
            lease_ms=lease_ms,
            importing=importing,
            drafts=tuple(drafts),
        )
        return Composed(command, tuple([encode_draft(draft) for draft in drafts]), texts)

    def renewed(self, composed: Composed) -> Composed:
        """The same command issued now: storing its texts took a while."""
        issued_at = self._clock()
        return structs.replace(
            composed, command=structs.replace(composed.command, issued_at=issued_at, not_after=issued_at + self._timeout_us)
        )

    def _contents(
        self, facts: SessionFacts, ids: Sequence[str], events: Sequence[NewEvent], expiry_day: str, claiming: bool
    ) -> tuple[list[Content], tuple[LargeText, ...]]:
        if facts.policy_mode == ZDR:
            return [NO_CONTENT if event.content is None else _OMITTED for event in events], ()
        items = [
            SealItem(
                workspace_id=facts.workspace_id,
                session_id=facts.session_id,
                event_id=own_id,
                subject_id=facts.subject_id,
                expiry_day=expiry_day,
                json_text=event.content,
            )
            for own_id, event in zip(ids, events, strict=True)
            if event.content is not None
        ]
        if not items:
            return [NO_CONTENT] * len(events), ()
        sealed, texts = self._claimed(items) if claiming else (self._sealer.seal_many(items), ())
        if _sealed_bytes(sealed) > SEALED_BYTES_MAX:
            raise Invalid(f"more than {SEALED_BYTES_MAX} bytes of sealed content in one command", code="request.too_large")
        self._remember_warm(facts.session_id, expiry_day)
        rest = iter(sealed)
        return [NO_CONTENT if event.content is None else next(rest) for event in events], texts

    def _claimed(self, items: Sequence[SealItem]) -> tuple[list[Content], tuple[LargeText, ...]]:
        """Sealed into the command as far as it holds them; the largest ones are claimed."""
        small = [item for item in items if len(item.json_text) <= CONTENT_BYTES_MAX]
        sealed = dict(zip([item.event_id for item in small], self._sealer.seal_many(small), strict=True))
        left = _sealed_bytes(sealed.values())
        for event_id in sorted(sealed, key=lambda each: len(sealed[each].ciphertext or b""), reverse=True):
            if left <= SEALED_BYTES_MAX:
                break
            left -= len(sealed.pop(event_id).ciphertext or b"")
        texts: list[LargeText] = []
        for item in items:
            if item.event_id not in sealed:
                sealed[item.event_id], text = self._sealer.seal_claim(item)
                texts.append(text)
        return [sealed[item.event_id] for item in items], tuple(texts)

    def _remember_warm(self, session_id: str, expiry_day: str) -> None:
        # Several threads may be here; a lost entry costs one more hop to a thread, no more.
        self._warm[(session_id, expiry_day)] = time.monotonic() + self._warm_s
        while len(self._warm) > 100_000:
            self._warm.popitem(last=False)

    def _identity_key(self, workspace_id: str) -> bytes:
        key = self._identity_keys.get(workspace_id)
        if key is None:
            key = self._identity_keys[workspace_id] = self._keyring.identity_key(workspace_id)
        return key

    def _actor(self, workspace_id: str, outside_id: str) -> str:
        name = (workspace_id, outside_id)

        def load(names: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
            made = {each: self._keyring.pseudonym(each[0], "actor", each[1], create=True) for each in names}
            return {each: pseudonym for each, pseudonym in made.items() if pseudonym is not None}

        return self._pseudonyms.get_many([name], load)[name]
