"""The keyring in a bucket: the contract, on moto's S3, and what only the bucket shows."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streams.blobs import open_bucket
from streams.blobs.bucket import Bucket
from streams.custody.aws import KmsKeys
from streams.custody.bucket_keyring import BucketKeyring
from streams.custody.keyring import SecretRef
from streams.custody.local_keys import LocalKeyFile
from streams.errors import BlobStoreUnavailable, ContentUnavailable, KeyringUnavailable, Misconfigured
from streams.keyrings import open_keyring as open_by_settings
from streams.settings import Settings
from tests.contract.keyring_contract import WORKSPACE, KeyringContract, OpenKeyring, session
from tests.support.object_server import CREDENTIALS, ObjectServer, object_server


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as made:
        yield made


@pytest.fixture
def bucket(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return server.new_bucket()


@pytest.fixture
def open_keyring(server: ObjectServer, bucket: str, tmp_path: Path) -> Iterator[OpenKeyring]:
    opened: list[BucketKeyring] = []

    def opens() -> BucketKeyring:
        objects = open_bucket(bucket, "keys", server.url, "TEST")
        opened.append(BucketKeyring(objects, LocalKeyFile(tmp_path / "workspace.key")))
        return opened[-1]

    yield opens
    for keyring in opened:
        keyring.close()


class TestBucketKeyring(KeyringContract):
    """Fixture `open_keyring` is above."""

    many = 200
    """Each is a request, to a server that takes its time."""


def contents(server: ObjectServer, bucket: str) -> bytes:
    """Names and contents of everything in the bucket."""
    client = server.client()
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return b"\0".join(each["Key"].encode() + client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in listed)


def test_nothing_in_the_bucket_holds_a_secret_or_a_name_in_clear_and_nothing_of_a_destroyed_one(
    server: ObjectServer, bucket: str, open_keyring: OpenKeyring
) -> None:
    keyring = open_keyring()
    subject_id = keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=True)
    assert subject_id is not None
    ref = SecretRef("subject", WORKSPACE, subject_id)
    secret = keyring.secrets([ref], create=True)[ref]
    before = contents(server, bucket)
    for form in (secret, base64.b64encode(secret), secret.hex().encode(), b"mia_li"):
        assert form not in before
    wrapped = server.client().get_object(Bucket=bucket, Key=f"keys/{WORKSPACE}/secrets/subject/{subject_id}")["Body"].read()
    keyring.destroy([ref])
    after = contents(server, bucket)
    assert wrapped not in after
    assert keyring.pseudonym(WORKSPACE, "subject", "mia_li_3668", create=False) is None


class Late(Bucket):
    """A process that is stopped between its look and its write."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket._store)
        self.before_create: Callable[[], None] = lambda: None
        self.before_replace: Callable[[], None] = lambda: None

    def create(self, name: str, content: bytes) -> bool:
        if "/secrets/session/" in name:
            self.before_create()
        return super().create(name, content)

    def replace(self, name: str, content: bytes, version: str) -> bool:
        self.before_replace()
        return super().replace(name, content, version)


def test_a_slow_process_brings_no_secret_back(server: ObjectServer, bucket: str, open_keyring: OpenKeyring, tmp_path: Path) -> None:
    late = Late(open_bucket(bucket, "keys", server.url, "TEST"))
    slow, quick = BucketKeyring(late, LocalKeyFile(tmp_path / "workspace.key")), open_keyring()
    late.before_create = lambda: quick.destroy([session(1)])
    with pytest.raises(ContentUnavailable):
        slow.secrets([session(1)], create=True)
    quick.secrets([session(2)], create=True)
    late.before_replace = lambda: quick.destroy([session(2)])
    slow.rotate(WORKSPACE)
    assert open_keyring().destroyed([session(1), session(2)]) == {session(1), session(2)}
    slow.close()


def test_a_secret_is_whole_however_many_rotations_pass_while_it_is_created(
    server: ObjectServer, bucket: str, open_keyring: OpenKeyring, tmp_path: Path
) -> None:
    """Its creator stands still until the key that it wrapped by is gone."""
    late = Late(open_bucket(bucket, "keys", server.url, "TEST"))
    slow, quick = BucketKeyring(late, LocalKeyFile(tmp_path / "workspace.key")), open_keyring()
    quick.secrets([session(0)], create=True)

    def rotate_thrice() -> None:
        for _ in range(3):
            quick.rotate(WORKSPACE)
        slow._keys.clear()  # as time does

    late.before_create = rotate_thrice
    made = slow.secrets([session(1)], create=True)
    assert open_keyring().secrets([session(1)], create=False) == made
    slow.close()


@pytest.mark.parametrize("replaced", [2, 3])
def test_a_rotation_that_was_broken_off_is_finished_by_the_next(
    server: ObjectServer, bucket: str, open_keyring: OpenKeyring, tmp_path: Path, replaced: int
) -> None:
    refs = [session(number) for number in range(4)]
    made = open_keyring().secrets(refs, create=True)
    late, left = Late(open_bucket(bucket, "keys", server.url, "TEST")), [None] * replaced

    def dies() -> None:
        try:
            left.pop()
        except IndexError:
            raise BlobStoreUnavailable("killed here") from None

    late.before_replace = dies
    killed, other = BucketKeyring(late, LocalKeyFile(tmp_path / "workspace.key")), open_keyring()
    with pytest.raises(KeyringUnavailable):
        killed.rotate(WORKSPACE)
    assert other.secrets(refs, create=False) == made
    assert other.rotate(WORKSPACE) == len(refs) - replaced
    assert other.counts(WORKSPACE) == {"generation": 2, "session": 4}
    assert open_keyring().secrets(refs, create=False) == made
    killed.close()


def test_a_rotation_that_was_broken_off_before_the_key_file_was_changed_needs_the_old_one_no_longer(
    server: ObjectServer, bucket: str, open_keyring: OpenKeyring, tmp_path: Path
) -> None:
    made = open_keyring().secrets([session(1), session(2)], create=True)
    late = Late(open_bucket(bucket, "keys", server.url, "TEST"))

    def dies() -> None:
        raise BlobStoreUnavailable("killed here")

    late.before_replace = dies
    killed, key_file = BucketKeyring(late, LocalKeyFile(tmp_path / "workspace.key")), tmp_path / "workspace.key"
    with pytest.raises(KeyringUnavailable):
        killed.rotate(WORKSPACE)
    killed.close()
    key_file.rename(tmp_path / "workspace.key.old")
    open_keyring().rotate(WORKSPACE)
    (tmp_path / "workspace.key.old").unlink()
    assert open_keyring().secrets(list(made), create=False) == made


def test_a_bucket_that_keeps_versions_is_refused_at_the_start(server: ObjectServer, bucket: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, keyring=f"s3://{bucket}/keys", keyring_endpoint=server.url)
    open_by_settings(settings).close()
    for status in ("Enabled", "Suspended"):
        server.client().put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        with pytest.raises(Misconfigured, match="versioning is"):
            open_by_settings(settings)


def test_settings_that_name_no_keyring_are_refused(tmp_path: Path) -> None:
    for changes in ({"keyring": "http://x"}, {"keyring": "s3://"}, {"workspace_keys": "aws-kms:"}, {"workspace_keys": "vault"}):
        with pytest.raises(Misconfigured, match="SESSION_STREAMS_"):
            open_by_settings(replace(Settings(data_dir=tmp_path), **changes))  # type: ignore[arg-type]


def test_a_bucket_that_does_not_answer_is_a_keyring_that_is_unavailable(bucket: str, tmp_path: Path) -> None:
    objects = open_bucket(bucket, "keys", "http://127.0.0.1:1", "TEST")
    keyring = BucketKeyring(objects, LocalKeyFile(tmp_path / "workspace.key"))
    with pytest.raises(KeyringUnavailable):
        keyring.secrets([session()], create=True)
    keyring.close()


class TestKms:
    """Workspace keys wrapped by AWS KMS, on moto's."""

    @pytest.fixture
    def settings(self, server: ObjectServer, bucket: str, tmp_path: Path) -> Settings:
        import boto3

        client = boto3.client("kms", endpoint_url=server.url, region_name="us-east-1")
        key = client.create_key()["KeyMetadata"]["KeyId"]
        return Settings(data_dir=tmp_path, workspace_keys=f"aws-kms:{key}", kms_endpoint=server.url)

    @pytest.fixture(autouse=True)
    def region(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def test_what_it_wrapped_opens_in_another_process_and_for_no_other_workspace(self, settings: Settings) -> None:
        keyring = open_by_settings(settings)
        made = keyring.secrets([session()], create=True)
        keyring.close()
        again = open_by_settings(settings)
        assert again.secrets([session()], create=False) == made
        again.close()
        provider = KmsKeys(settings.workspace_keys.removeprefix("aws-kms:"), settings.kms_endpoint)
        wrapped = provider.wrap(WORKSPACE, b"k" * 32)
        assert provider.unwrap(WORKSPACE, provider.key_id, wrapped) == b"k" * 32
        with pytest.raises(Misconfigured):
            provider.unwrap("ws_" + "9" * 32, provider.key_id, wrapped)

    def test_a_key_file_is_followed_by_kms_once_every_workspace_is_rotated(self, settings: Settings) -> None:
        local = replace(settings, workspace_keys="")
        keyring = open_by_settings(local)
        made = keyring.secrets([session()], create=True)
        keyring.close()
        moved = open_by_settings(settings)
        assert moved.secrets([session()], create=False) == made
        moved.rotate(WORKSPACE)
        moved.close()
        (settings.data_dir / "keyring" / "workspace.key").unlink()
        alone = open_by_settings(settings)
        assert alone.secrets([session()], create=False) == made
        alone.close()

    def test_a_key_that_is_not_there_is_said(self, settings: Settings) -> None:
        wrong = replace(settings, workspace_keys="aws-kms:11111111-1111-1111-1111-111111111111")
        keyring = open_by_settings(wrong)
        with pytest.raises(Misconfigured, match="KMS"):
            keyring.secrets([session()], create=True)
        keyring.close()

    def test_where_it_does_not_answer_the_keyring_is_unavailable(self, settings: Settings) -> None:
        away = replace(settings, kms_endpoint="http://127.0.0.1:1")
        keyring = open_by_settings(away)
        with pytest.raises(KeyringUnavailable):
            keyring.secrets([session()], create=True)
        keyring.close()
