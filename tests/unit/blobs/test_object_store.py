"""A bucket as a store of blobs, on a real server that speaks S3."""

import asyncio

import pytest

from streams.blobs import BlobStore, open_blob_store
from streams.errors import BlobStoreUnavailable, Misconfigured
from streams.settings import Settings
from tests.contract.blob_contract import BlobContract, content_of, listed, stream
from tests.support.object_server import CREDENTIALS, ObjectServer, object_server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def store_in(server: ObjectServer, bucket: str) -> BlobStore:
    return open_blob_store(Settings(blob_store=f"s3://{bucket}/a/prefix/", blob_store_endpoint=server.url))


class TestBucket(BlobContract):
    @pytest.fixture
    def blobs(self, server: ObjectServer) -> BlobStore:
        self.server, self.bucket = server, server.new_bucket()
        return store_in(server, self.bucket)

    def left_over(self) -> list[str]:
        return self.server.unfinished(self.bucket)


def test_everything_lies_below_the_prefix_of_the_setting(server: ObjectServer) -> None:
    bucket = server.new_bucket()
    asyncio.run(store_in(server, bucket).put("x/y", stream(b"1")))
    assert [found["Key"] for found in server.client().list_objects_v2(Bucket=bucket)["Contents"]] == ["a/prefix/x/y"]


def test_a_bucket_that_is_not_there_is_for_the_operator(server: ObjectServer) -> None:
    blobs = store_in(server, "no-such-bucket")
    for change in (lambda: blobs.create("a", b"1"), lambda: blobs.put("a", stream(b"1"))):
        with pytest.raises(Misconfigured, match="not there"):
            asyncio.run(change())  # type: ignore[arg-type]


def test_a_store_that_is_away_is_to_be_asked_again_and_does_not_tell_its_address() -> None:
    with object_server() as server:
        bucket = server.new_bucket()
        blobs = store_in(server, bucket)
        asyncio.run(blobs.create("a", b"1"))
    port = server.url.rpartition(":")[2]
    for call in (
        lambda: blobs.create("b", b"1"),
        lambda: blobs.put("b", stream(b"1")),
        lambda: blobs.delete("a"),
        lambda: content_of(blobs, "a"),
        lambda: listed(blobs, ""),
    ):
        with pytest.raises(BlobStoreUnavailable) as told:
            asyncio.run(call())  # type: ignore[arg-type]
        assert port not in told.value.detail
