"""Whether the log was written with the numbers that this process would write.

Numbers mean nothing without their registry: the same number under another one is another schema, and its bytes may
even be read as that. So an installation keeps the registry it began with, and this notices where it did not.

Called at the start of a gateway, and by `topics apply` and `doctor`.
"""

import time
from typing import Final

from schemas import codec
from streams.errors import BrokerUnavailable, Misconfigured
from streams.log.reader import PartitionReader, end_offsets, log_start_offsets
from streams.log.topics import Topics
from streams.settings import Settings

_SUBJECT: Final = "workspace-config"
_ENOUGH_S: Final = 5.0


def verify_numbers(settings: Settings) -> None:
    """Looks at the oldest row of `workspaces.config`, which every installation has before its first event.

    Raises `Misconfigured` where another registry wrote it, and whatever reading raises.
    """
    value = _oldest_value(settings)
    if value is None:
        return  # nothing is written yet: the choice is free
    try:
        subject = codec.subject_of(value)
    except codec.Undecodable as error:
        subject = str(error)
    if subject != _SUBJECT:
        now = (
            "the one of SESSION_STREAMS_REGISTRY_URL" if settings.registry_url else "the file, which no SESSION_STREAMS_REGISTRY_URL means"
        )
        raise Misconfigured(
            f"{Topics(settings.topic_prefix).config} was written with the numbers of another registry than {now} ({subject}); "
            "an installation keeps the registry that it began with"
        )


def _oldest_value(settings: Settings) -> bytes | None:
    place = (Topics(settings.topic_prefix).config, 0)
    end = end_offsets(settings, [place], committed=True)[place]
    deadline = time.monotonic() + _ENOUGH_S
    with PartitionReader(settings, "numbers", log_start_offsets(settings, [place])) as reader:
        while reader.position(*place) < end:
            for record in reader.read(100, 0.5):
                if record.value is not None:
                    return record.value
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(f"{place[0]}: not read within {_ENOUGH_S:g} s")
    return None
