"""An S3 server of moto's, as a process, and what only its administrator sees."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.support.waiting import eventually

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True)
class ObjectServer:
    """Answers at `url` until its process ends."""

    url: str
    process: "subprocess.Popen[bytes]"

    def client(self) -> Any:
        import boto3

        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def new_bucket(self) -> str:
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def unfinished(self, bucket: str) -> list[str]:
        """Keys of uploads that were neither completed nor aborted."""
        return [upload["Key"] for upload in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "1048576"}
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:

        def answers() -> bool:
            assert process.poll() is None
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        eventually(answers, timeout_s=60)
        yield ObjectServer(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
