"""Whether the process of this container works: asked by Docker, and by whoever waits for it.

    healthcheck.py            healthy: the process answers; where it does not, starting it again helps
    healthcheck.py --ready    ready: it may be given work; where it is not yet, waiting helps

Ready is not the same as healthy: a projector that reads its tables back for an hour is healthy all the while, and so is
a gateway whose broker is away. Docker marks, and orchestrators restart, what is unhealthy, so only the first question
is theirs to ask. Status 0 is yes, 1 is no; one line says why.

Which role it is stands in the command line of process 1. All answer over HTTP but an authority,
which listens nowhere; its consumer group names it for as long as it keeps polling.
"""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from streams.errors import StreamsError
from streams.log.owners import GroupOwners
from streams.log.topics import Topics
from streams.settings import Settings

_TIMEOUT_S: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_PORTS: Final = {"gateway": 8700, "projector": None, "graph-projector": None, "custodian": None, "agents": None}
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Answer(NamedTuple):
    yes: bool
    reason: str


def main(arguments: Sequence[str], command_line: Sequence[str]) -> Answer:
    """`command_line` is that of process 1."""
    role, options = _role(command_line)
    ready = "--ready" in arguments
    if role in _PORTS:
        return _over_http(role, options, "readyz" if ready else "healthz")
    if role == "authority":
        return _in_its_group(Settings.from_environment(), ready)
    return Answer(True, f"{role or 'no role'}: nothing to ask")


def _role(command_line: Sequence[str]) -> tuple[str, Mapping[str, str]]:
    """The word after the program, and the options behind it."""
    for index, word in enumerate(command_line):
        if Path(word).name == "session-streams" or word == "connectors.cli":
            rest = [part for given in command_line[index + 1 :] for part in given.split("=", 1)]
            return (rest[0] if rest else ""), dict(pairwise(rest))
    return "", {}


def _over_http(role: str, options: Mapping[str, str], path: str) -> Answer:
    host, port = options.get("--host", "127.0.0.1"), options.get("--port", _PORTS[role])
    if port is None:
        return Answer(False, f"{role}: started without --port, so nobody knows where it listens")
    url = f"http://{_EVERYWHERE.get(host, host)}:{port}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
            return Answer(response.status == 200, f"{url}: {response.status}")
    except urllib.error.HTTPError as error:
        return Answer(False, f"{url}: {error.code} {error.read(500).decode(errors='replace')}")
    except OSError as error:
        return Answer(False, f"{url}: {error}")


def _in_its_group(settings: Settings, ready: bool) -> Answer:
    name = f"{settings.topic_prefix}authority.{settings.instance}"
    try:
        members = GroupOwners(settings, "authority", Topics(settings.topic_prefix).commands).assigned(_TIMEOUT_S)
    except StreamsError as error:
        # Starting an authority again brings no broker back.
        return Answer(not ready, f"cannot tell: {error.detail}")
    mine = [partitions for member, partitions in members.items() if re.fullmatch(f"{re.escape(name)}-{_UUID}", member)]
    if not mine:
        return Answer(False, f"{name} is not in its group: it has not joined yet, or no longer polls")
    taken = sorted(partition for partitions in mine for partition in partitions)
    # More authorities than partitions: the one that waits is as good as the others once all partitions are taken.
    everywhere = len(frozenset().union(*members.values())) == settings.partitions
    return Answer(not ready or bool(taken) or everywhere, f"{name} has partitions {taken}")


if __name__ == "__main__":
    answer = main(sys.argv[1:], Path("/proc/1/cmdline").read_text().split("\0"))
    print(answer.reason)
    sys.exit(0 if answer.yes else 1)
