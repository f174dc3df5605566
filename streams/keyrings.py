"""The settings `keyring` and `workspace_keys` become a keyring: the one place where a process opens its own."""

from typing import Final
from urllib.parse import urlsplit

from streams.blobs import open_bucket
from streams.custody.aws import KmsKeys, require_unversioned
from streams.custody.bucket_keyring import BucketKeyring
from streams.custody.keyring import Keyring, WorkspaceKeyProvider
from streams.custody.local_keys import LocalKeyFile
from streams.custody.sqlite_keyring import LOCAL_KEY_NAME, SqliteKeyring
from streams.errors import Misconfigured
from streams.settings import Settings

_KEYRING: Final = "SESSION_STREAMS_KEYRING"
_KMS: Final = "aws-kms:"


class Following:
    """A `WorkspaceKeyProvider` that wraps by one and still opens what the one before it wrapped: for the time of a change."""

    def __init__(self, current: WorkspaceKeyProvider, before: WorkspaceKeyProvider) -> None:
        self._current, self._before = current, before

    @property
    def key_id(self) -> str:
        return self._current.key_id

    def wrap(self, workspace_id: str, key: bytes) -> bytes:
        return self._current.wrap(workspace_id, key)

    def unwrap(self, workspace_id: str, key_id: str, wrapped: bytes) -> bytes:
        provider = self._current if key_id == self._current.key_id else self._before
        return provider.unwrap(workspace_id, key_id, wrapped)


def open_keyring(settings: Settings) -> Keyring:
    """Raises `Misconfigured` naming the setting, `KeyringUnavailable`."""
    provider = _provider(settings)
    if not settings.keyring:
        return SqliteKeyring(settings.data_dir / "keyring" / "keyring.sqlite", provider)
    url = urlsplit(settings.keyring)
    if url.scheme != "s3" or not url.netloc:
        raise Misconfigured(f"{_KEYRING}: expected s3://bucket/prefix, or nothing for a file")
    require_unversioned(url.netloc, settings.keyring_endpoint)
    return BucketKeyring(open_bucket(url.netloc, url.path.strip("/"), settings.keyring_endpoint, _KEYRING), provider)


def _provider(settings: Settings) -> WorkspaceKeyProvider:
    """From a key file to KMS: while the file is there, what it wrapped is opened by it, until every workspace is rotated."""
    local = settings.data_dir / "keyring" / LOCAL_KEY_NAME
    if not settings.workspace_keys:
        return LocalKeyFile(local)
    if not settings.workspace_keys.startswith(_KMS) or settings.workspace_keys == _KMS:
        raise Misconfigured(f"SESSION_STREAMS_WORKSPACE_KEYS: expected {_KMS}<key>, or nothing for a file")
    kms = KmsKeys(settings.workspace_keys.removeprefix(_KMS), settings.kms_endpoint)
    return Following(kms, LocalKeyFile(local)) if local.is_file() else kms
