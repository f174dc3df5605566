"""What is asked of AWS, or of what speaks like it: to wrap workspace keys (KMS), and whether a bucket keeps versions. The only importer
of `boto3`, which is there with the extra `aws`. Credentials and region come from the AWS_* variables.
"""

from typing import Any, Final

from streams.errors import KeyringUnavailable, Misconfigured

_KEY_BYTES: Final = 32
_CONTEXT: Final = "session-streams-workspace"
_REFUSED: Final = frozenset(
    {
        "AccessDeniedException", "AccessDenied", "DisabledException", "IncorrectKeyException", "InvalidCiphertextException",
        "InvalidKeyUsageException", "KMSInvalidStateException", "NotFoundException", "NoSuchBucket", "UnrecognizedClientException",
        "InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch",
    }
)  # fmt: skip
"""Codes that no waiting changes."""


class KmsKeys:
    """A `WorkspaceKeyProvider`: a key of AWS KMS, by its id, ARN or alias, which never leaves it. The workspace is in the encryption
    context, so that what was wrapped for one opens for no other. A `key_id` of what was wrapped is `aws-kms:` and that name; KMS finds in
    the ciphertext which version of the key it needs."""

    def __init__(self, key: str, endpoint: str = "") -> None:
        """`endpoint`: of a service that is not AWS, as a URL. Raises `Misconfigured`."""
        self._key, self._client = key, _client("kms", endpoint)

    @property
    def key_id(self) -> str:
        return f"aws-kms:{self._key}"

    def wrap(self, workspace_id: str, key: bytes) -> bytes:
        return bytes(self._call("encrypt", Plaintext=key, EncryptionContext={_CONTEXT: workspace_id})["CiphertextBlob"])

    def unwrap(self, workspace_id: str, key_id: str, wrapped: bytes) -> bytes:
        if key_id != self.key_id:
            raise Misconfigured(f"{self.key_id} did not wrap the key of {workspace_id} ({key_id} did)")
        key = bytes(self._call("decrypt", CiphertextBlob=wrapped, EncryptionContext={_CONTEXT: workspace_id})["Plaintext"])
        if len(key) != _KEY_BYTES:
            raise Misconfigured(f"the wrapped key of {workspace_id} is none")
        return key

    def _call(self, operation: str, **given: Any) -> dict[str, Any]:
        return _called(self._client, operation, f"AWS KMS, {operation}", KeyId=self._key, **given)


def require_unversioned(bucket: str, endpoint: str = "") -> None:
    """An overwritten secret would stay in a bucket that keeps versions, or kept them once. Raises `Misconfigured`, `KeyringUnavailable`."""
    told = _called(_client("s3", endpoint), "get_bucket_versioning", f"bucket {bucket}", Bucket=bucket)
    status = told.get("Status")
    if status:
        raise Misconfigured(f"bucket {bucket}: versioning is {status.lower()}; a keyring needs a bucket that never had it, or a destroyed"
                            " secret stays there")  # fmt: skip


def _client(service: str, endpoint: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise Misconfigured("AWS: boto3 is not there; install the extra `aws` (session-streams[aws])") from error
    try:
        config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})
        return boto3.client(service, endpoint_url=endpoint or None, config=config)
    except (BotoCoreError, ValueError) as error:
        raise Misconfigured(f"AWS {service}: {error}") from error


def _called(client: Any, operation: str, doing: str, **given: Any) -> dict[str, Any]:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ParamValidationError

    try:
        told: dict[str, Any] = getattr(client, operation)(**given)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in _REFUSED:
            raise Misconfigured(f"{doing}: refused ({code})") from error
        raise KeyringUnavailable(f"{doing}: {code}") from error
    except (NoCredentialsError, NoRegionError, ParamValidationError) as error:
        raise Misconfigured(f"{doing}: {type(error).__name__}") from error
    except BotoCoreError as error:
        raise KeyringUnavailable(f"{doing}: {type(error).__name__}") from error
    return told
