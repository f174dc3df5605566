"""The keys that an installation signs with, one at a time for each purpose, and what a stranger is told of them.

    <folder>/keys/<key id>.pem      a private key, mode 0600
    <folder>/trust.json             every public key: for what, since when, until when, revoked or not

A key that was followed by another signs no more, and what it signed stays good; what a revoked key signed, ever, is not (design 05,
"keys rotate; old statements verify until their key is revoked").
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct, structs

from streams.clock import now_us
from streams.custody.signing import KeyValue, PublicKey, SigningKey
from streams.errors import Misconfigured, NotFound
from streams.files import sync_directory
from streams.session.days import moment

Purpose = Literal["bundles", "receipts", "retention", "qualifications"]
"""Session Bundles; receipts of erasures; statements of the retention projector; qualifications of import targets."""

_TRUST_BYTES_MAX: Final = 1024 * 1024


class TrustedKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times as RFC 3339 in UTC. `retired_at`: when another key followed; `revoked_at`: since when nothing counts that it signed."""

    key_id: str
    purpose: Purpose
    keytype: Literal["ed25519"] = "ed25519"
    scheme: Literal["ed25519"] = "ed25519"
    keyval: KeyValue
    created_at: str
    retired_at: str | None = None
    revoked_at: str | None = None

    @property
    def public(self) -> PublicKey:
        return PublicKey(keyval=self.keyval)


class Trust(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stranger verifies with; nothing in it is secret."""

    format: Literal["session-streams.trust"] = "session-streams.trust"
    schema_version: Literal[1] = 1
    keys: tuple[TrustedKey, ...] = ()

    def counting(self, purpose: Purpose) -> dict[str, PublicKey]:
        """By id, those whose signatures count."""
        return {key.key_id: key.public for key in self.keys if key.purpose == purpose and key.revoked_at is None}

    def current(self, purpose: Purpose) -> TrustedKey | None:
        of_purpose = [key for key in self.keys if key.purpose == purpose and key.retired_at is None and key.revoked_at is None]
        return of_purpose[-1] if of_purpose else None


class Signers:
    """Shared by the processes of an installation. Every method raises `Misconfigured` where the files are not as they should be; those that
    write, OSError where nothing can be written."""

    def __init__(self, folder: Path, clock: Callable[[], int] = now_us) -> None:
        self._folder, self._clock = folder, clock

    def current(self, purpose: Purpose) -> SigningKey:
        """The key to sign with now; the first one of a purpose is made here."""
        named = self._current(purpose)
        key = self._loaded(named.key_id)
        if key is None:
            # It may have been revoked since it was named.
            named = self._current(purpose)
            key = self._loaded(named.key_id)
        if key is None:
            raise Misconfigured(f"{self._path(named.key_id)}: the key that signs {purpose} is not there: restore it, or rotate")
        return key

    def _current(self, purpose: Purpose) -> TrustedKey:
        found = self.trust().current(purpose)
        if found is None:
            with self._changing() as trust:
                found = trust.current(purpose)
                if found is None:
                    found = self._made(purpose)
                    self._write(structs.replace(trust, keys=(*trust.keys, found)))
        return found

    def rotate(self, purpose: Purpose) -> TrustedKey:
        """Another key signs from now on."""
        with self._changing() as trust:
            made, now = self._made(purpose), moment(self._clock())
            keys = tuple(
                structs.replace(key, retired_at=now) if key.purpose == purpose and key.retired_at is None else key for key in trust.keys
            )
            self._write(structs.replace(trust, keys=(*keys, made)))
        return made

    def revoke(self, key_id: str) -> TrustedKey:
        """Nothing counts any more that it signed; the private key goes. Revoking twice keeps the first time. Raises `NotFound`."""
        with self._changing() as trust:
            found = next((key for key in trust.keys if key.key_id == key_id), None)
            if found is None:
                raise NotFound(f"no key {key_id[:80]}: expected the 64 digits of one, as `trust show` tells them")
            if found.revoked_at is None:
                now = moment(self._clock())
                found = structs.replace(found, retired_at=found.retired_at or now, revoked_at=now)
                self._write(structs.replace(trust, keys=tuple(found if key.key_id == key_id else key for key in trust.keys)))
            self._path(key_id).unlink(missing_ok=True)
        return found

    def trust(self) -> Trust:
        """All keys, in the order in which they were made."""
        path = self._folder / "trust.json"
        try:
            with path.open("rb") as file:
                return msgspec.json.decode(file.read(_TRUST_BYTES_MAX), type=Trust)
        except FileNotFoundError:
            return Trust()
        except (OSError, msgspec.DecodeError) as error:
            raise Misconfigured(f"{path}: {error}") from error

    def _made(self, purpose: Purpose) -> TrustedKey:
        """Its file is there before anybody is told of it."""
        key = SigningKey.generate()
        key.store(self._path(key.public.key_id))
        return TrustedKey(
            key_id=key.public.key_id, purpose=purpose, keyval=key.public.keyval, created_at=moment(self._clock())
        )  # fmt: skip

    def _path(self, key_id: str) -> Path:
        return self._folder / "keys" / f"{key_id}.pem"

    def _loaded(self, key_id: str) -> SigningKey | None:
        """None: it is not there. What lies under its name has to be it, or everything would be signed by somebody nobody trusts."""
        path = self._path(key_id)
        try:
            key = SigningKey.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Misconfigured(f"{path}: {error.strerror}") from error
        if key.public.key_id != key_id:
            raise Misconfigured(f"{path}: holds another key, {key.public.key_id}: restore the right one, or rotate")
        return key

    @contextmanager
    def _changing(self) -> Iterator[Trust]:
        """The keys as they are, while nobody else changes them."""
        try:
            (self._folder / "keys").mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Misconfigured(f"{self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self.trust()
        finally:
            os.close(descriptor)

    def _write(self, trust: Trust) -> None:
        path, aside = self._folder / "trust.json", self._folder / f".trust.{os.getpid()}"
        text = msgspec.json.format(msgspec.json.encode(trust), indent=1) + b"\n"
        if len(text) > _TRUST_BYTES_MAX:
            # Nobody reads more of it, so nothing that is signed would count any more.
            raise Misconfigured(f"{path}: would have {len(text)} bytes, at most {_TRUST_BYTES_MAX}: no more keys")
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_directory(self._folder)
