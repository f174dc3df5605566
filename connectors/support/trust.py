"""Changes whose observations count: by hand, since nothing that is told may say of itself that it is to be believed."""

import os
from pathlib import Path

import msgspec

from connectors.support.catalogue import TrustedKeys, trusted_keys
from streams.custody.signing import PublicKey, SigningKey
from streams.errors import Invalid, Misconfigured, NotFound


def change_trust(path: Path, *, public: str | None = None, key_file: Path | None = None, remove: str | None = None) -> dict[str, PublicKey]:
    """Adds a public key (64 hex digits), adds that of a key file, removes one by its id; gives the keys that are trusted then.

    Raises `Invalid`, `NotFound` and `Misconfigured`.
    """
    try:
        before = trusted_keys(path)
        after = dict(before)
        for key in (*([] if public is None else [_public(public)]), *([] if key_file is None else [SigningKey.at(key_file).public])):
            after[key.key_id] = key
        if remove is not None and after.pop(remove, None) is None:
            raise NotFound(f"key {remove[:80]} is not trusted")
        if after != before:
            _write(path, TrustedKeys(after))
    except OSError as error:
        raise Misconfigured(f"{error.filename or path}: {error.strerror}") from error
    return after


def _public(text: str) -> PublicKey:
    try:
        return msgspec.convert({"keyval": {"public": text}}, PublicKey)
    except msgspec.ValidationError as error:
        raise Invalid("public key: expected 64 hex digits, in lower case") from error


def _write(path: Path, trusted: TrustedKeys) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(msgspec.json.format(msgspec.json.encode(trusted, order="sorted"), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
