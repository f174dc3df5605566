"""The keyring of many machines: an S3-compatible bucket, an object a secret.

    <workspace>/keys/<generation, 6 digits>       the workspace's key, wrapped by the provider; created once
    <workspace>/secrets/<kind>/<id>               a wrapped secret, or the tombstone in its place
    <workspace>/names/<kind>/<keyed hash>         the pseudonym of an outside name
    <workspace>/people/<pseudonym>                the keyed hash, so that an erasure finds the name
    days/<day>/<workspace>/<kind>                 a secret that goes when its day is over

- A secret is created only where nothing is, and wrapped anew only where it is what was read: a tombstone is replaced by nobody, so a
  slow process brings no secret back.
- The bucket must keep no versions: an overwritten secret would stay. Whether it does is asked at the start. Replication and object
  locks to elsewhere are not seen from here.
- A rotation keeps the key before the last: a process that is slow wraps with it, and wraps anew at once. The next rotation takes it away;
  so who gives up a key file or KMS key rotates once more when every process has been started anew.

What a destruction overwrites is gone from the bucket when the call returns, as far as the service keeps its word.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeVar

import msgspec
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from msgspec import Struct

from streams.custody.cache import BoundedCache
from streams.custody.keyring import (
    DAY_KINDS,
    PSEUDONYM_PREFIXES,
    SECRET_BYTES,
    PseudonymKind,
    SecretRef,
    WorkspaceKeyProvider,
    hashed_name,
    refuse_destroyed,
    require_outside,
)
from streams.errors import BlobStoreUnavailable, Invalid, KeyringUnavailable
from streams.session.ids import is_id

T = TypeVar("T")
U = TypeVar("U")

_THREADS: Final = 16
_TOMBSTONE: Final = b"destroyed"
_KEYS_CACHED: Final = 1024
_KEY_CACHE_S: Final = 300.0
"""After that the provider is asked again, so that a key withdrawn there stops opening here."""
_ATTEMPTS: Final = 5
_NAMES_AT_ONCE: Final = 1000


class _Found(Protocol):
    @property
    def content(self) -> bytes: ...
    @property
    def version(self) -> str: ...


class Objects(Protocol):
    """What `streams.blobs.bucket.Bucket` offers. Raises `BlobStoreUnavailable` and `Misconfigured`."""

    def read(self, name: str) -> _Found | None: ...
    def create(self, name: str, content: bytes) -> bool: ...
    def replace(self, name: str, content: bytes, version: str) -> bool: ...
    def overwrite(self, name: str, content: bytes) -> None: ...
    def delete(self, name: str) -> None: ...
    def names(self, prefix: str, after: str | None = None) -> Iterator[str]: ...


class _WrappedKey(Struct, frozen=True):
    provider_key_id: str
    wrapped: bytes


class BucketKeyring:
    """A `Keyring`."""

    def __init__(self, objects: Objects, provider: WorkspaceKeyProvider) -> None:
        self._objects, self._provider = objects, provider
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="keyring")
        self._keys: BoundedCache[tuple[str, int], bytes] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)
        self._newest: BoundedCache[str, int] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)
        self._identity: BoundedCache[str, bytes] = BoundedCache(seconds=_KEY_CACHE_S, max_entries=_KEYS_CACHED)

    def identity_key(self, workspace_id: str) -> bytes:
        key = self._identity_key(workspace_id, create=True)
        assert key is not None
        return key

    def pseudonym(self, workspace_id: str, kind: PseudonymKind, outside_id: str, *, create: bool) -> str | None:
        key = self._identity_key(workspace_id, create=create)
        if key is None:
            return None
        hashed = hashed_name(key, outside_id).hex()
        name = f"{workspace_id}/names/{kind}/{hashed}"
        with _translated():
            found = self._objects.read(name)
            if found is not None or not create:
                return None if found is None else found.content.decode()
            require_outside(outside_id)
            minted = f"{PSEUDONYM_PREFIXES[kind]}_{os.urandom(16).hex()}"
            # What an erasure goes by is there first: a name whose creation was broken off leads to nobody.
            self._objects.create(f"{workspace_id}/people/{minted}", hashed.encode())
            if self._objects.create(name, minted.encode()):
                return minted
            self._objects.delete(f"{workspace_id}/people/{minted}")
            there = self._objects.read(name)
        if there is None:
            raise KeyringUnavailable("keyring: the name was forgotten just now")
        return there.content.decode()

    def is_named(self, workspace_id: str, pseudonym: str) -> bool:
        with _translated():
            person = self._objects.read(f"{workspace_id}/people/{pseudonym}")
            # One whose creation was broken off stands for nobody.
            names = [] if person is None else [f"{workspace_id}/names/{kind}/{person.content.decode()}" for kind in PSEUDONYM_PREFIXES]
            return any((found := self._objects.read(name)) is not None and found.content.decode() == pseudonym for name in names)

    def secrets(self, refs: Collection[SecretRef], *, create: bool) -> dict[SecretRef, bytes]:
        wanted = list(dict.fromkeys(refs))
        found = dict(zip(wanted, self._each(self._read, wanted), strict=True))
        if create:
            refuse_destroyed(ref for ref, value in found.items() if value == _TOMBSTONE)
            absent = [ref for ref, value in found.items() if value is None]
            found |= dict(zip(absent, self._each(self._created, absent), strict=True))
            refuse_destroyed(ref for ref, value in found.items() if value == _TOMBSTONE)
        there = [(ref, value) for ref, value in found.items() if value is not None and value != _TOMBSTONE]
        return {ref: self._unwrapped(ref.workspace_id, value) for ref, value in there}

    def destroyed(self, refs: Collection[SecretRef]) -> frozenset[SecretRef]:
        wanted = list(dict.fromkeys(refs))
        return frozenset(ref for ref, value in zip(wanted, self._each(self._read, wanted), strict=True) if value == _TOMBSTONE)

    def days_before(self, day: str, limit: int) -> list[SecretRef]:
        found: list[SecretRef] = []
        with _translated():
            for name in self._objects.names("days"):
                _, of, workspace_id, kind = name.split("/")
                if of >= day or len(found) == limit:
                    break
                if kind in DAY_KINDS:
                    found.append(SecretRef("day" if kind == "day" else "dead_letters", workspace_id, of))
        return found

    def destroy(self, refs: Collection[SecretRef]) -> None:
        self._each(self._destroy, list(dict.fromkeys(refs)))

    def workspaces(self) -> list[str]:
        with _translated():
            return sorted({name.split("/")[0] for name in self._objects.names("") if "/keys/" in name})

    def rotate(self, workspace_id: str) -> int:
        generations = self._generations(workspace_id)
        last = generations[-1] if generations else 0
        newest = last if self._is_unfinished(workspace_id, generations) else self._begun(workspace_id, last)
        self._newest.forget((workspace_id,))
        rewrap = partial(self._rewrapped, workspace_id, newest)
        rewrapped = sum(sum(self._each(rewrap, page)) for page in self._pages(workspace_id))
        with _translated():
            for generation in generations:
                if generation < newest - 1:
                    self._objects.delete(_key_name(workspace_id, generation))
                    self._keys.forget([(workspace_id, generation)])
        return rewrapped

    def counts(self, workspace_id: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for page in self._pages(workspace_id):
            found = zip(page, self._each(self._objects.read, page), strict=True)
            counts.update("destroyed" if each and each.content == _TOMBSTONE else name.split("/")[2] for name, each in found)
        generations = self._generations(workspace_id)
        return {**dict(sorted(counts.items())), "generation": generations[-1] if generations else 0}

    def close(self) -> None:
        self._pool.shutdown()
        for cache in (self._keys, self._newest, self._identity):
            cache.clear()

    def _each(self, work: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """At once, as many as there are threads."""
        listed = list(items)
        with _translated():
            if len(listed) < 2:
                return [work(item) for item in listed]
            return list(self._pool.map(work, listed))

    def _read(self, ref: SecretRef) -> bytes | None:
        found = self._objects.read(_secret_name(ref))
        return None if found is None else found.content

    def _created(self, ref: SecretRef) -> bytes:
        """What is there then, whoever made it."""
        if ref.kind in DAY_KINDS:
            # First, so that no secret of a day is ever overlooked; one without a secret is removed with the day.
            self._objects.create(_day_name(ref), b"")
        return self._created_under(ref.workspace_id, _secret_name(ref))

    def _created_under(self, workspace_id: str, name: str) -> bytes:
        secret, generation = os.urandom(SECRET_BYTES), self._newest_generation(workspace_id)
        value = self._wrapped(workspace_id, generation, secret)
        if not self._objects.create(name, value):
            found = self._objects.read(name)
            if found is None:
                raise KeyringUnavailable("keyring: an object came and went")
            return found.content
        newest = self._generations(workspace_id)[-1]
        if newest != generation:
            # A rotation began meanwhile, and may not have seen this one. Its key may even be gone by now.
            self._newest.forget((workspace_id,))
            self._rewrapped(workspace_id, newest, name, {value: secret})
            value = self._wrapped(workspace_id, newest, secret)
        return value

    def _destroy(self, ref: SecretRef) -> None:
        self._objects.overwrite(_secret_name(ref), _TOMBSTONE)
        if ref.kind in DAY_KINDS:
            self._objects.delete(_day_name(ref))
        if ref.kind == "subject":
            self._forget_name(ref.workspace_id, ref.id)

    def _forget_name(self, workspace_id: str, subject_id: str) -> None:
        """In both roles: the keyed hash is the same (`hashed_name`)."""
        person = f"{workspace_id}/people/{subject_id}"
        found = self._objects.read(person)
        if found is None:
            return
        for kind in PSEUDONYM_PREFIXES:
            name = f"{workspace_id}/names/{kind}/{found.content.decode()}"
            role = self._objects.read(name)
            if role is not None:
                pseudonym = role.content.decode()
                if kind == "subject" and pseudonym != subject_id:
                    continue  # who returned since is somebody else
                self._objects.delete(name)
                self._objects.delete(f"{workspace_id}/people/{pseudonym}")
        self._objects.delete(person)

    def _identity_key(self, workspace_id: str, *, create: bool) -> bytes | None:
        name = f"{workspace_id}/secrets/identity/-"

        def load(_: list[str]) -> dict[str, bytes]:
            with _translated():
                found = self._objects.read(name)
                value = found.content if found is not None else self._created_under(workspace_id, name) if create else None
            return {} if value is None else {workspace_id: self._unwrapped(workspace_id, value)}

        return self._identity.get_many((workspace_id,), load).get(workspace_id)

    def _generations(self, workspace_id: str) -> list[int]:
        with _translated():
            return sorted(int(name.rsplit("/", 1)[1]) for name in self._objects.names(f"{workspace_id}/keys"))

    def _newest_generation(self, workspace_id: str) -> int:
        if not is_id(workspace_id, "ws"):
            raise Invalid("workspace: its id does not fit the pattern")

        def load(_: list[str]) -> dict[str, int]:
            generations = self._generations(workspace_id)
            return {workspace_id: generations[-1] if generations else self._begun(workspace_id, 0)}

        return self._newest.get_many((workspace_id,), load)[workspace_id]

    def _begun(self, workspace_id: str, last: int) -> int:
        """The generation after the last, made by whoever is first."""
        made = _WrappedKey(self._provider.key_id, self._provider.wrap(workspace_id, os.urandom(SECRET_BYTES)))
        with _translated():
            self._objects.create(_key_name(workspace_id, last + 1), msgspec.json.encode(made))
        return last + 1

    def _workspace_key(self, workspace_id: str, generation: int) -> bytes:
        def load(_: list[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
            kept = self._kept_key(workspace_id, generation)
            return {(workspace_id, generation): self._provider.unwrap(workspace_id, kept.provider_key_id, kept.wrapped)}

        return self._keys.get_many(((workspace_id, generation),), load)[workspace_id, generation]

    def _kept_key(self, workspace_id: str, generation: int) -> _WrappedKey:
        with _translated():
            found = self._objects.read(_key_name(workspace_id, generation))
        if found is None:
            raise KeyringUnavailable(f"keyring: key {generation} of {workspace_id} is not there")
        return msgspec.json.decode(found.content, type=_WrappedKey)

    def _wrapped(self, workspace_id: str, generation: int, secret: bytes) -> bytes:
        return b"%d\n%b" % (generation, aes_key_wrap(self._workspace_key(workspace_id, generation), secret))

    def _unwrapped(self, workspace_id: str, value: bytes) -> bytes:
        generation, _, wrapped = value.partition(b"\n")
        try:
            return aes_key_unwrap(self._workspace_key(workspace_id, int(generation)), wrapped)
        except (InvalidUnwrap, ValueError) as error:
            raise KeyringUnavailable(f"keyring: a secret of {workspace_id} is not wrapped by the key of its workspace") from error

    def _pages(self, workspace_id: str) -> Iterator[list[str]]:
        """Of the names of its secrets."""
        with _translated():
            names = self._objects.names(f"{workspace_id}/secrets")
            while page := list(islice(names, _NAMES_AT_ONCE)):
                yield page

    def _is_unfinished(self, workspace_id: str, generations: list[int]) -> bool:
        """One that the provider's key of now began. What was begun for another key would need that one for ever."""
        if len(generations) < 2 or self._kept_key(workspace_id, generations[-1]).provider_key_id != self._provider.key_id:
            return False
        found = (each for page in self._pages(workspace_id) for each in self._each(self._objects.read, page))
        return any(each is not None and _is_older(each.content, generations[-1]) for each in found)

    def _rewrapped(self, workspace_id: str, newest: int, name: str, known: Mapping[bytes, bytes] | None = None) -> int:
        """1 where it was wrapped anew. A tombstone stays one. `known`: secrets that need not be unwrapped."""
        for _ in range(_ATTEMPTS):
            with _translated():
                found = self._objects.read(name)
                if found is None or not _is_older(found.content, newest):
                    return 0
                secret = (known or {}).get(found.content) or self._unwrapped(workspace_id, found.content)
                if self._objects.replace(name, self._wrapped(workspace_id, newest, secret), found.version):
                    return 1
        raise KeyringUnavailable(f"keyring: {name} does not stand still; rotate again to finish")


def _is_older(value: bytes, newest: int) -> bool:
    return value != _TOMBSTONE and int(value.partition(b"\n")[0]) < newest


def _secret_name(ref: SecretRef) -> str:
    workspace_id, kind, identifier = ref.name.split("/")
    return f"{workspace_id}/secrets/{kind}/{identifier}"


def _day_name(ref: SecretRef) -> str:
    return f"days/{ref.id}/{ref.workspace_id}/{ref.kind}"


def _key_name(workspace_id: str, generation: int) -> str:
    return f"{workspace_id}/keys/{generation:06d}"


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BlobStoreUnavailable as error:
        raise KeyringUnavailable(f"keyring: {error.detail}") from error
