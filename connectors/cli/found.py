"""Where a command finds its gateway, its key and its cluster: flags, then the environment, then what `up` wrote down.

`<data folder>/up.json` (mode 0600: it holds a key) exists while `up` runs.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from streams.errors import Misconfigured
from streams.settings import Settings

_NAME: Final = "up.json"


class Up(Struct, frozen=True, kw_only=True):
    """What `up` wrote down, and prints with --json."""

    gateway: str
    broker: str
    api_key: str
    workspace_id: str
    topic_prefix: str
    partitions: int
    replication: int
    pid: int
    tap: str | None = None


class Gateway(Struct, frozen=True):
    url: str
    api_key: str


def write_up(data_dir: Path, up: Up) -> Path:
    path = data_dir / _NAME
    write_private(path, msgspec.json.format(msgspec.json.encode(up), indent=1) + b"\n")
    return path


def remove_up(data_dir: Path) -> None:
    (data_dir / _NAME).unlink(missing_ok=True)


def read_up(data_dir: Path) -> Up | None:
    """None where nothing was written down. Raises `Misconfigured` where it cannot be read."""
    path = data_dir / _NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Up)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Misconfigured(f"{path} cannot be read ({error}); `session-streams up` writes it anew") from error


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    beside.replace(path)


def settings(*, broker: str | None = None, data_dir: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Those of the environment; the cluster by flag, by environment, or by `up.json`. The process uses their schema registry
    from here on. Raises `Misconfigured`, `RegistryUnavailable`."""
    given = settings_of_up(data_dir, environment)
    if broker is not None:
        return replace(given, bootstrap=broker)
    up = read_up(given.data_dir)
    if "SESSION_STREAMS_BOOTSTRAP" in environment or up is None:
        return given
    return replace(given, bootstrap=up.broker, topic_prefix=up.topic_prefix, partitions=up.partitions, replication=up.replication)


def gateway(*, url: str | None, api_key: str | None, data_dir: Path | None = None, environment: Mapping[str, str] = os.environ) -> Gateway:
    """Raises `Misconfigured` saying how to name what was not found."""
    url = url or environment.get("SESSION_STREAMS_URL")
    api_key = api_key or environment.get("SESSION_STREAMS_API_KEY")
    if url is None or api_key is None:
        folder = data_dir or Settings.from_environment(environment).data_dir
        up = read_up(folder)
        if up is not None and url in (None, up.gateway):
            url, api_key = up.gateway, api_key or up.api_key
        if url is None:
            raise Misconfigured(
                f"no gateway is named, and there is no up.json in {folder.absolute()}: run `session-streams up`, go to the folder "
                "where `make up` runs, or give --data-dir or --url (SESSION_STREAMS_URL)"
            )
    if api_key is None:
        raise Misconfigured(f"no API key for {url}: give --api-key, or set SESSION_STREAMS_API_KEY")
    return Gateway(url, api_key)


def settings_of_up(data_dir: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """What `up` starts from: the environment alone, since an `up.json` may be left over from one that was killed. The process
    uses their schema registry from here on."""
    given = Settings.from_environment(environment)
    if given.registry_url:
        from connectors.registry import configure

        configure(given)  # before the first record: its numbers stand in front of every value
    return given if data_dir is None else replace(given, data_dir=data_dir)
