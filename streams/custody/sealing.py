"""JSON text into sealed content and back. The bytes are those of `sealed_bytes`, the keys come from the keyring.

- Sealing creates secrets, durable before the content is returned: what is acknowledged can be opened after a power cut.
- The JSON text is kept byte for byte and is not parsed here; the edge has checked it.
- Read time is authoritative: content past its expiry day is not opened, whether or not its secret is gone already.
- A text that is too large for a record is claimed (`claim_checks.py`): whoever seals it stores it, whoever opens it fetches it.
- Secrets are cached for a bounded time and number, the ciphers made of them in number only; one is used only while its secrets
  are cached. `forget` drops both at once.

The edge seals; reads that may, open. The authority never opens.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from streams.clock import boottime_s, now_us
from streams.custody.cache import BoundedCache, ElapsedClock
from streams.custody.claim_checks import (
    BLOB_ID_BYTES,
    LARGE_TEXT_BYTES_MAX,
    ClaimCheck,
    FetchText,
    LargeText,
    claim_body,
    read_claim_body,
)  # fmt: skip
from streams.custody.days import content_expiry_day, day_end_us
from streams.custody.keyring import Keyring, SecretRef
from streams.custody.sealed_bytes import (
    NONCE_BYTES,
    SALT_BYTES,
    UNREADABLE,
    Claimed,
    Opened,
    checked,
    claim_sealed_with,
    content_aad,
    content_key,
    open_bytes,
    open_salted,
    opened_with,
    seal_bytes,
    sealed_with,
)  # fmt: skip
from streams.errors import ContentUnavailable, Invalid
from streams.session.events import NONE, OMITTED, SEALED, Content, Draft, KeyReference
from streams.session.words import CONTENT_ERASED, CONTENT_EXPIRED, CONTENT_OMITTED

__all__ = [
    "CONTENT_BYTES_MAX", "UNREADABLE", "NotAtHand", "Opened", "SealItem", "Sealer",
    "content_aad", "content_expiry_day", "content_key", "day_end_us", "open_bytes", "open_salted", "seal_bytes",
]  # fmt: skip

CONTENT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of JSON text in one event, before compression, so that the limit does not depend on how well a text compresses."""

_RANDOM_BYTES: Final = NONCE_BYTES + SALT_BYTES
_CIPHERS: Final = 4096
"""Kept ready: about 3 KB each."""


class NotAtHand(Exception):
    """A secret or a text would have to be asked for, which blocks."""


class SealItem(Struct, frozen=True, gc=False, kw_only=True):
    """One text to seal, and the place that it is sealed for."""

    workspace_id: str
    session_id: str
    event_id: str
    subject_id: str | None
    expiry_day: str
    json_text: bytes


class Sealer:
    """Seals and opens with the secrets of one keyring. Blocking and thread-safe.

    `cache_seconds` is the lease: how long a destroyed secret may still be used by a process that nobody told. `now_us` is
    the wall clock that read time is judged by, `elapsed` the clock of the cache.
    """

    def __init__(
        self,
        keyring: Keyring,
        *,
        cache_seconds: float,
        max_entries: int = 100_000,
        now_us: Callable[[], int] = now_us,
        elapsed: ElapsedClock = boottime_s,
    ) -> None:
        self._keyring = keyring
        self._now_us = now_us
        self._cache: BoundedCache[SecretRef, bytes] = BoundedCache(seconds=cache_seconds, max_entries=max_entries, clock=elapsed)
        # Asked with the secrets themselves, which come through the cache each time: it never answers for one that is gone.
        self._cipher_of = lru_cache(min(max_entries, _CIPHERS))(_cipher)
        self.fetch_text: FetchText | None = None
        """Gets what claim checks stand for; given by whoever has the blob store."""

    def seal(
        self, *, workspace_id: str, session_id: str, event_id: str, subject_id: str | None, expiry_day: str, json_text: bytes
    ) -> Content:
        """As `seal_many`, for one text."""
        item = SealItem(
            workspace_id=workspace_id, session_id=session_id, event_id=event_id, subject_id=subject_id, expiry_day=expiry_day,
            json_text=json_text,
        )  # fmt: skip
        return self.seal_many((item,))[0]

    def seal_many(self, items: Sequence[SealItem]) -> list[Content]:
        """Seal all with one call to the keyring; their secrets are durable when this returns.

        Raises `Invalid` (request.too_large; an id or day that is none), `ContentUnavailable` where a secret is destroyed
        (the subject or session is erased, the day is over), `KeyringUnavailable`.
        """
        for item in items:
            day_end_us(item.expiry_day)
            if len(item.json_text) > CONTENT_BYTES_MAX:
                raise Invalid(f"content: {len(item.json_text)} bytes, at most {CONTENT_BYTES_MAX}", code="request.too_large")
        # The texts of one command lie in one place: what they share is made once.
        places = [_place_for(item) for item in items]
        ciphers = {place: self.cipher(content_key, *secrets) for place, secrets in self._created(places).items()}
        random = os.urandom(_RANDOM_BYTES * len(items))
        return [
            _sealed(ciphers[place], place[1], item, random[at : at + _RANDOM_BYTES])
            for item, place, at in zip(items, places, range(0, len(random), _RANDOM_BYTES), strict=True)
        ]

    def seal_claim(self, item: SealItem) -> tuple[Content, LargeText]:
        """Content that claims a text, and the text, to be stored before the event is sent. Raises what `seal_many` raises."""
        day_end_us(item.expiry_day)
        if len(item.json_text) > LARGE_TEXT_BYTES_MAX:
            raise Invalid(f"content: {len(item.json_text)} bytes, at most {LARGE_TEXT_BYTES_MAX}", code="request.too_large")
        place = _place_for(item)
        secrets = self._created((place,))[place]
        claim = ClaimCheck(
            workspace_id=item.workspace_id, session_id=item.session_id, event_id=item.event_id, expiry_day=item.expiry_day,
            blob_id=os.urandom(BLOB_ID_BYTES).hex(), size=len(item.json_text), key=content_key(*secrets),
        )  # fmt: skip
        aad, nonce, salt = content_aad(item.workspace_id, item.session_id, item.event_id), os.urandom(NONCE_BYTES), os.urandom(SALT_BYTES)
        ciphertext, digest = claim_sealed_with(self.cipher(content_key, *secrets), aad, nonce, salt, item.json_text, claim_body(claim))
        content = Content(state=SEALED, key_reference=place[1], ciphertext=ciphertext, digest=digest)
        return content, LargeText(claim, item.json_text)

    def _created(self, places: Collection["_Place"]) -> dict["_Place", "_Secrets"]:
        triples = {place: _references(*place) for place in places}
        secrets = self.secrets((ref for triple in triples.values() for ref in triple), create=True)
        return {place: (secrets[subject], secrets[session], secrets[day]) for place, (subject, session, day) in triples.items()}

    def open(self, event: Draft) -> bytes:
        """The JSON text of an event's content. Raises `ContentUnavailable`, saying why; `KeyringUnavailable`.

        An event without content (`content.state` is none) has nothing to open: asking is misuse.
        """
        opened = self.open_many((event,))[0]
        if opened is None:
            raise RuntimeError(f"{event.event_id} has no content")
        if isinstance(opened, ContentUnavailable):
            raise opened
        return opened

    def open_many(self, events: Sequence[Draft], *, ask: bool = True) -> list[bytes | ContentUnavailable | None]:
        """Open a page with one call to the keyring (a second one where a secret is gone, to learn why).

        Per position: the JSON text, why it cannot be shown, or None where the event has no content. Raises
        `KeyringUnavailable`, `BlobStoreUnavailable`; with `ask` false `NotAtHand` instead of blocking.
        """
        return [opened.json_text if isinstance(opened, Opened) else opened for opened in self.open_each(events, ask=ask)]

    def open_each(self, events: Sequence[Draft], *, ask: bool = True) -> Iterator[Opened | ContentUnavailable | None]:
        """As `open_many`, with the salts, and each opened only when it is asked for: one text is in memory at a time.

        The secrets are those of the first step, so whoever goes through a long list slowly takes it in pieces.
        """
        places = [_place_of(event) for event in events]
        openers = self._openers(places, self._asked if ask else _not_at_hand)
        for event, place in zip(events, places, strict=True):
            opener = place and openers[place]
            try:
                yield self._opened(event, opener, ask=ask)
            except ContentUnavailable as error:
                yield ContentUnavailable(f"content of {event.event_id}: {error.detail}", code=error.code)

    def _opened(self, event: Draft, opener: "_Secrets | str | None", *, ask: bool) -> Opened | ContentUnavailable | None:
        content = event.content
        if content.state == NONE:
            return None
        if not isinstance(opener, tuple) or content.ciphertext is None or content.digest is None:
            code = CONTENT_OMITTED if content.state == OMITTED else opener if isinstance(opener, str) else UNREADABLE
            return ContentUnavailable(f"content of {event.event_id}", code=code)
        aad = content_aad(event.workspace_id, event.session_id, event.event_id)
        opened = opened_with(self.cipher(content_key, *opener), aad, content.ciphertext, content.digest)
        if isinstance(opened, Opened):
            return opened
        if not ask:
            raise NotAtHand
        return checked(Opened(opened.salt, self._fetched(event, opened, opener)), content.digest)

    def _fetched(self, event: Draft, claimed: Claimed, secrets: "_Secrets") -> bytes:
        key = event.content.key_reference
        if self.fetch_text is None or key is None:
            raise ContentUnavailable("its text lies in the blob store, which is not at hand here")
        blob_id, size = read_claim_body(claimed.body, event_id=event.event_id)
        claim = ClaimCheck(
            workspace_id=event.workspace_id, session_id=event.session_id, event_id=event.event_id, expiry_day=key.expiry_day,
            blob_id=blob_id, size=size, key=content_key(*secrets),
        )  # fmt: skip
        return self.fetch_text(claim)

    def _openers(self, places: Iterable["_Place | None"], load: "_Load") -> dict["_Place", "_Secrets | str"]:
        """For each place the secrets that open it, or the code why nothing does."""
        triples = {place: _references_if_sound(*place) for place in set(places) if place is not None}
        secrets, closed = self._look_up({triple for triple in triples.values() if triple is not None}, load)

        def opener(triple: "_Triple | None") -> "_Secrets | str":
            if triple is None or triple in closed:
                return UNREADABLE if triple is None else closed[triple]
            subject, session, day = triple
            return secrets[subject], secrets[session], secrets[day]

        return {place: opener(triple) for place, triple in triples.items()}

    def why_closed(self, workspace_id: str, references: Collection[KeyReference]) -> dict[KeyReference, str]:
        """The code (content.*) why what is sealed under a reference cannot be shown; one that still opens is not in it.

        Raises `KeyringUnavailable`.
        """
        known = {reference: _references_if_sound(workspace_id, reference) for reference in references}
        _, closed = self._look_up({triple for triple in known.values() if triple is not None}, self._asked)
        codes = {reference: UNREADABLE if triple is None else closed.get(triple) for reference, triple in known.items()}
        return {reference: code for reference, code in codes.items() if code is not None}

    def _look_up(self, triples: Collection["_Triple"], load: "_Load") -> tuple[dict[SecretRef, bytes], dict["_Triple", str]]:
        """The secrets that there are, and why each triple opens nothing that does not."""
        wanted = {ref for triple in triples for ref in triple}
        secrets = self._cache.get_many(wanted, load)
        gone = wanted - secrets.keys()
        destroyed = self.destroyed(gone) if gone else frozenset()
        now_us = self._now_us()
        codes = {triple: _why_closed(triple, gone, destroyed, now_us) for triple in triples}
        return secrets, {triple: code for triple, code in codes.items() if code is not None}

    def _asked(self, absent: list[SecretRef]) -> dict[SecretRef, bytes]:
        return self._keyring.secrets(absent, create=False)

    def secrets(self, refs: Iterable[SecretRef], *, create: bool, ask: bool = True) -> dict[SecretRef, bytes]:
        """As `Keyring.secrets`, through the cache; with `ask` false `NotAtHand` instead of blocking."""
        return self._cache.get_many(refs, (lambda absent: self._keyring.secrets(absent, create=create)) if ask else _not_at_hand)

    def cipher(self, key_of: Callable[..., bytes], *secrets: bytes) -> AESGCM:
        """Of the key that `key_of` makes of secrets, kept ready until any secret is forgotten."""
        return self._cipher_of(key_of, *secrets)

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        """As `Keyring.destroyed`, never from a cache."""
        return self._keyring.destroyed(refs)

    def is_over(self, day: str) -> bool:
        """Whether a UTC day (YYYY-MM-DD) has ended: what is sealed under it is not to be shown any more."""
        return self._now_us() >= day_end_us(day)

    def forget(self, refs: Collection[SecretRef]) -> None:
        """Drop cached secrets: they were destroyed elsewhere."""
        self._cache.forget(refs)
        self._cipher_of.cache_clear()

    def forget_all(self) -> None:
        self._cache.clear()
        self._cipher_of.cache_clear()


_Triple = tuple[SecretRef, SecretRef, SecretRef]
"""Subject's, session's and day's, in the order that the key is derived in."""
_Secrets = tuple[bytes, bytes, bytes]
_Place = tuple[str, KeyReference]
"""A workspace, and what is sealed under in it: the events of a page have few."""
_Load = Callable[[list[SecretRef]], dict[SecretRef, bytes]]


def _not_at_hand(_: list[SecretRef]) -> dict[SecretRef, bytes]:
    raise NotAtHand


def _references(workspace_id: str, key: KeyReference) -> _Triple:
    session = SecretRef("session", workspace_id, key.session_id)
    subject = session if key.subject_id is None else SecretRef("subject", workspace_id, key.subject_id)
    return subject, session, SecretRef("day", workspace_id, key.expiry_day)


def _place_for(item: SealItem) -> _Place:
    return item.workspace_id, KeyReference(item.subject_id, item.session_id, item.expiry_day)


def _place_of(event: Draft) -> _Place | None:
    """None where there is nothing to open."""
    key = event.content.key_reference
    return None if event.content.state != SEALED or key is None else (event.workspace_id, key)


def _references_if_sound(workspace_id: str, key: KeyReference) -> _Triple | None:
    """None where the reference names what can be no secret."""
    triple = _references(workspace_id, key)
    try:
        day_end_us(key.expiry_day)
        for ref in triple:
            ref.name  # noqa: B018 - raises where a part does not fit
    except Invalid:
        return None
    return triple


def _cipher(key_of: Callable[..., bytes], *secrets: bytes) -> AESGCM:
    return AESGCM(key_of(*secrets))


def _sealed(cipher: AESGCM, reference: KeyReference, item: SealItem, random: bytes) -> Content:
    ciphertext, digest = sealed_with(
        cipher,
        content_aad(item.workspace_id, item.session_id, item.event_id),
        random[:NONCE_BYTES],
        random[NONCE_BYTES:],
        item.json_text,
    )
    return Content(state=SEALED, key_reference=reference, ciphertext=ciphertext, digest=digest)


def _why_closed(triple: _Triple, gone: Collection[SecretRef], destroyed: frozenset[SecretRef], now_us: int) -> str | None:
    """Erasure is told before expiry: it is the stronger fact, and stays true."""
    subject, session, day = triple
    if subject in destroyed or session in destroyed:
        return CONTENT_ERASED
    if day in destroyed or now_us >= day_end_us(day.id):
        return CONTENT_EXPIRED
    return UNREADABLE if any(ref in gone for ref in triple) else None
