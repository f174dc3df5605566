"""The asking side of erasures, composed once: commands to the custodian, its outcomes (as `agent_asking` does for agents' checkpoints)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct

from connectors.edge.erasures import ErasureService, ErasureSubmitter
from connectors.edge.submit import HandedOn
from streams.custody.keyring import Keyring
from streams.log.requests import AnswerFollower, CommandLog, new_reply_to
from streams.log.retention import WorkspaceOutcome, decode_workspace_outcomes
from streams.log.topics import Topics
from streams.settings import Settings

_THREADS: Final = 2
_COMMANDS_MAX: Final = 512
_BYTES_MAX: Final = 1024 * 1024


class ErasureAsking(Struct, frozen=True, kw_only=True):
    """Of one process. Only `service` belongs to an event loop."""

    settings: Settings
    keyring: Keyring
    commands: CommandLog
    outcomes: AnswerFollower[WorkspaceOutcome]
    reply_to: str
    handed_on: HandedOn[WorkspaceOutcome]
    pool: ThreadPoolExecutor

    def service(self) -> ErasureService:
        """The one that outcomes go to from now on. Called in its event loop."""
        timeout_s = self.settings.request_timeout_s
        submitter = ErasureSubmitter(self.commands, self.reply_to, timeout_s=timeout_s, commands_max=_COMMANDS_MAX, bytes_max=_BYTES_MAX)
        self.handed_on.submitter = submitter
        topic = Topics(self.settings.topic_prefix).workspace_commands
        return ErasureService(self.keyring, submitter, self.pool, topic=topic, timeout_s=timeout_s)


@contextmanager
def asking_erasures(settings: Settings, role: str, keyring: Keyring) -> Iterator[ErasureAsking]:
    """Opens all of it under the name of a role. Raises `BrokerUnavailable`."""
    topics = Topics(settings.topic_prefix)
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="erasures")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        commands = CommandLog(settings, role, topics.workspace_commands, partitions=1)
        stack.callback(commands.close)
        reply_to, handed_on = new_reply_to(settings.instance), HandedOn[WorkspaceOutcome]()
        outcomes = AnswerFollower(
            settings, f"{role}.workspace-outcomes", topics.workspace_outcomes, decode_workspace_outcomes, reply_to, handed_on, partitions=1
        )
        stack.callback(outcomes.close)
        yield ErasureAsking(
            settings=settings, keyring=keyring, commands=commands, outcomes=outcomes, reply_to=reply_to, handed_on=handed_on, pool=pool
        )
