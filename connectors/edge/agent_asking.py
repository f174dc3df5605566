"""The asking side of agents' checkpoints, composed once: commands out, outcomes in (as `asking` does for sessions)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct

from connectors.edge.agent_service import AgentRows, AgentService, AgentSubmitter
from connectors.edge.agent_states import AgentStates
from connectors.edge.submit import BYTES_MAX, COMMANDS_MAX, HandedOn
from streams.agents.records import AgentOutcome, decode_outcomes
from streams.custody.keyring import Keyring
from streams.custody.sealing import Sealer
from streams.log.requests import AnswerFollower, CommandLog, new_reply_to
from streams.log.topics import Topics
from streams.settings import Settings

_THREADS: Final = 4


class AgentAsking(Struct, frozen=True, kw_only=True):
    """Of one process. Only `service` belongs to an event loop."""

    settings: Settings
    states: AgentStates
    commands: CommandLog
    outcomes: AnswerFollower[AgentOutcome]
    reply_to: str
    handed_on: HandedOn[AgentOutcome]
    pool: ThreadPoolExecutor

    def service(self, rows: AgentRows, *, commands_max: int = COMMANDS_MAX, bytes_max: int = BYTES_MAX) -> AgentService:
        """The one that outcomes go to from now on. Called in its event loop."""
        timeout_s = self.settings.request_timeout_s
        submitter = AgentSubmitter(self.commands, self.reply_to, timeout_s=timeout_s, commands_max=commands_max, bytes_max=bytes_max)
        self.handed_on.submitter = submitter
        return AgentService(
            self.states, submitter, rows, self.pool, topic=Topics(self.settings.topic_prefix).agent_commands,
            partition_of=self.commands.partition_of, timeout_s=timeout_s,
        )  # fmt: skip


@contextmanager
def asking_agents(settings: Settings, role: str, keyring: Keyring, sealer: Sealer) -> Iterator[AgentAsking]:
    """Opens all of it under the name of a role; whoever holds the sealer forgets the names of `states`, too. Raises
    `BrokerUnavailable`."""
    topics = Topics(settings.topic_prefix)
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="agents")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        commands = CommandLog(settings, role, topics.agent_commands)
        stack.callback(commands.close)
        reply_to, handed_on = new_reply_to(settings.instance), HandedOn[AgentOutcome]()
        outcomes = AnswerFollower(settings, f"{role}.agent-outcomes", topics.agent_outcomes, decode_outcomes, reply_to, handed_on)
        stack.callback(outcomes.close)
        yield AgentAsking(
            settings=settings,
            states=AgentStates(keyring, sealer, cache_seconds=settings.lease_s),
            commands=commands,
            outcomes=outcomes,
            reply_to=reply_to,
            handed_on=handed_on,
            pool=pool,
        )
