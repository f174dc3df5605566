"""The setting `blob_store` becomes a store."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store

from streams.blobs.blobs import BlobStore
from streams.blobs.bucket import Bucket
from streams.blobs.local import LocalBlobs
from streams.blobs.object_store import ObjectStoreBlobs
from streams.errors import Misconfigured
from streams.settings import Settings

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_BLOB_STORE: Final = "SESSION_STREAMS_BLOB_STORE"
_RETRIES: Final = 3
_RETRY_TIMEOUT: Final = timedelta(seconds=10)


def open_blob_store(settings: Settings) -> BlobStore:
    """Raises `Misconfigured` naming the setting, `BlobStoreUnavailable` where a directory cannot be made."""
    url = urlsplit(settings.blob_store)
    if not settings.blob_store:
        return LocalBlobs(settings.data_dir / "blobs")
    if url.scheme == "file" and url.path:
        return LocalBlobs(Path(unquote(url.path)))
    if url.scheme == "s3" and url.netloc:
        return ObjectStoreBlobs(_store(url.netloc, url.path.strip("/"), settings.blob_store_endpoint, _BLOB_STORE))
    raise Misconfigured(f"{_BLOB_STORE}: expected s3://bucket/prefix or file:///folder")


def open_bucket(name: str, prefix: str, endpoint: str, variable: str) -> Bucket:
    """`variable` is what a complaint names. Raises `Misconfigured`."""
    return Bucket(_store(name, prefix, endpoint, variable))


def _store(bucket: str, prefix: str, endpoint: str, variable: str) -> S3Store:
    # What is not given here (credentials, region, endpoint) the store takes from the AWS_* variables.
    config: S3Config = {"endpoint": endpoint} if endpoint else {}
    client: ClientConfig = {"connect_timeout": "5s", "timeout": "60s"}
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    retries: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT}
    try:
        return S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=retries)
    except (BaseError, ValueError) as error:
        raise Misconfigured(f"{variable}: {str(error).splitlines()[0]}") from error
