"""The keys of an installation as capsules need them: of its retention projector, and of its support catalogue's qualifications."""

from pathlib import Path

from connectors.edge.capsule_statements import SigningUnavailable
from streams.capsules.checks import Purpose, Verdict
from streams.custody.signers import Signers
from streams.custody.signing import PublicKey, is_signed
from streams.errors import Misconfigured


class SignerKeys:
    """Thread-safe; blocks on files. A key that was followed by another still counts, one that is revoked is unknown."""

    def __init__(self, folder: Path) -> None:
        self._signers = Signers(folder)

    def sign(self, purpose: Purpose, told: bytes) -> tuple[str, bytes]:
        """The key's id and the signature. Raises `SigningUnavailable`."""
        try:
            key = self._signers.current(purpose)
        except (OSError, Misconfigured) as error:
            raise SigningUnavailable(str(error)) from error
        return key.public.key_id, key.sign_bytes(told)

    def verdict(self, purpose: Purpose, key_id: str, told: bytes, signature: bytes) -> Verdict:
        """Raises `SigningUnavailable`."""
        key = self._counting(purpose).get(key_id)
        if key is None:
            return "unknown"
        return "good" if is_signed(key, signature, told) else "wrong"

    def _counting(self, purpose: Purpose) -> dict[str, PublicKey]:
        try:
            return self._signers.trust().counting(purpose)
        except Misconfigured as error:
            raise SigningUnavailable(str(error)) from error
