"""The asking side, composed once: the keyring with what seals and names, commands out, outcomes in.

Whoever takes requests in (the gateway, the importer that does without one) holds one of these for as long as it runs,
and makes a `Submitter` of it in the event loop that its requests live in. What was opened is closed in reverse order.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from connectors.edge.compose import CommandComposer
from connectors.edge.erased import Erased
from connectors.edge.forgetting import Forgetting
from connectors.edge.submit import BYTES_MAX, COMMANDS_MAX, OutcomesHandedOn, Submitter
from streams.custody.keyring import Keyring
from streams.custody.sealing import Sealer
from streams.holders.caches import CacheHolder
from streams.keyrings import open_keyring
from streams.log.requests import CommandLog, OutcomeFollower, new_reply_to
from streams.settings import Settings


class Asking(Struct, frozen=True, kw_only=True):
    """Of one process. Only `submitter` belongs to an event loop."""

    settings: Settings
    keyring: Keyring
    sealer: Sealer
    erased: Erased
    forgetting: Forgetting
    holder: CacheHolder
    composer: CommandComposer
    commands: CommandLog
    outcomes: OutcomeFollower
    reply_to: str
    handed_on: OutcomesHandedOn

    def submitter(self, *, commands_max: int = COMMANDS_MAX, bytes_max: int = BYTES_MAX) -> Submitter:
        """The one that outcomes go to from now on. Called in its event loop."""
        submitter = Submitter(
            self.commands, self.reply_to, timeout_s=self.settings.request_timeout_s, commands_max=commands_max, bytes_max=bytes_max
        )
        self.handed_on.submitter = submitter
        return submitter


@contextmanager
def asking(settings: Settings, role: str) -> Iterator[Asking]:
    """Opens all of it under the name of a role. Raises `Misconfigured` (keyring) and `BrokerUnavailable`."""
    with ExitStack() as stack:
        keyring = open_keyring(settings)
        stack.callback(keyring.close)
        sealer = Sealer(keyring, cache_seconds=settings.lease_s)
        composer = CommandComposer(keyring, sealer, timeout_s=settings.request_timeout_s, cache_seconds=settings.lease_s)
        erased = Erased(keyring)
        forgetting = Forgetting(erased, sealer, composer.forget_names)
        # It is waited for from here on, so it registers before anything is cached.
        holder = CacheHolder(settings, role, forgetting)
        stack.callback(holder.close)
        commands = CommandLog(settings, role)
        stack.callback(commands.close)
        reply_to, handed_on = new_reply_to(settings.instance), OutcomesHandedOn()
        outcomes = OutcomeFollower(settings, role, reply_to, handed_on)
        stack.callback(outcomes.close)
        yield Asking(
            settings=settings,
            keyring=keyring,
            sealer=sealer,
            erased=erased,
            forgetting=forgetting,
            holder=holder,
            composer=composer,
            commands=commands,
            outcomes=outcomes,
            reply_to=reply_to,
            handed_on=handed_on,
        )
