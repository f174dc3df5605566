"""What a gateway needs of custody for capsules, in one place: seals and opens their private part, signs, and knows whose signatures
count. Everything blocks; it is thread-safe."""

from collections.abc import Callable

from msgspec import Struct

from connectors.edge.capsule_statements import CapsuleKeys
from streams.custody.capsules import CapsulePlace, open_capsule, seal_capsule
from streams.custody.keyring import Keyring


class CapsuleDesk(Struct, frozen=True):
    """`is_withdrawn`: whether the catalogue has revoked a qualification, by the digest of its receipt."""

    keyring: Keyring
    keys: CapsuleKeys
    is_withdrawn: Callable[[str], bool]

    def seal(self, place: CapsulePlace, plaintext: bytes) -> bytes:
        """As `seal_capsule`."""
        return seal_capsule(self.keyring, place, plaintext)

    def open(self, place: CapsulePlace, sealed: bytes) -> bytes:
        """As `open_capsule`."""
        return open_capsule(self.keyring, place, sealed)

    def is_destroyed(self, place: CapsulePlace) -> bool:
        """Whether the capsule's own secret is destroyed. Raises `KeyringUnavailable`."""
        return bool(self.keyring.destroyed((place.secret,)))

    def destroy(self, place: CapsulePlace) -> None:
        """For ever. Raises `KeyringUnavailable`."""
        self.keyring.destroy((place.secret,))
