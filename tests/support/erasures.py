"""The custodian of erasures in memory: the pure core decides what it is asked; it goes on only when a test says so.

Faults are values that a test sets: `mute` counts commands that nobody decides, `withhold` counts those whose outcome is lost,
`undeliverable` fails deliveries, `failure` is raised by every read.
"""

import itertools
from collections.abc import Callable, Sequence

from msgspec import structs

from connectors.owner.messages import Awaited, ErasureAnswer
from streams.clock import now_us
from streams.custody.keyring import Keyring
from streams.custody.signers import Signers
from streams.errors import StreamsError
from streams.holders.forgetting import secrets_of
from streams.log.retention import (
    ACCEPTED,
    COMPLETE,
    DESTROYED,
    ENFORCED,
    KNOWN,
    LATE,
    Order,
    Purged,
    RetentionRow,
    WorkspaceCommand,
    WorkspaceOutcome,
    decode_workspace_command,
    encode_retention,
    erasure_id_of,
)
from streams.retention import core
from streams.retention.receipts import receipt

HOLDER = "custodian/0"
"""Of all that there are, the one that is waited for here."""


class CustodianInMemory:
    """`forget` is what the holder of this process calls; `clock` gives microseconds."""

    def __init__(self, keyring: Keyring, signers: Signers, clock: Callable[[], int] = now_us) -> None:
        self.rows: dict[str, RetentionRow] = {}
        self.commands: list[WorkspaceCommand] = []
        self.signers = signers
        self.mute = self.withhold = 0
        self.undeliverable: StreamsError | None = None
        self.failure: StreamsError | None = None
        self.forget: Callable[[Sequence[Order]], None] = lambda orders: None
        self.settle: Callable[[Sequence[WorkspaceOutcome]], None] = lambda outcomes: None
        self._keyring, self._clock = keyring, clock
        self._offsets, self._orders = itertools.count(), itertools.count(1)

    def send(self, value: bytes, session_id: str, on_done: Callable[[StreamsError | None], None] | None = None) -> None:
        if self.undeliverable is not None:
            assert on_done is not None
            on_done(self.undeliverable)
            return
        command = decode_workspace_command(value)
        assert command.workspace_id == session_id, "the key is the workspace"
        if self.mute:
            self.mute -= 1
            return
        self.commands.append(command)
        outcome = self._decided(command)
        if self.withhold:
            self.withhold -= 1
            return
        self.settle([outcome])

    async def erasure(self, workspace_id: str, erasure_id: str, *, wait_s: float = 5.0) -> ErasureAnswer | None:
        if self.failure is not None:
            raise self.failure
        row = self.rows.get(erasure_id)
        if row is None or row.workspace_id != workspace_id:
            return None
        awaited = [] if row.state == COMPLETE else [Awaited(HOLDER, "has not confirmed that it holds nothing of it")]
        return ErasureAnswer(encode_retention(row), tuple(awaited))

    def goes_on(self, erasure_id: str, until: str = COMPLETE) -> None:
        """To the state `until`, one after the other."""
        while self.rows[erasure_id].state != until:
            self.rows[erasure_id] = self._next(self.rows[erasure_id])

    def _next(self, row: RetentionRow) -> RetentionRow:
        erasure, now = row.erasure, self._clock()
        assert erasure is not None
        if row.state == ACCEPTED:
            order = Order(next(self._orders), erasure.scope, row.workspace_id, erasure.scope_id)
            self._keyring.destroy(secrets_of([order]))
            self.forget([order])
            return core.destroyed(row, order.order, now)
        if row.state == DESTROYED:
            return self._signed(core.enforced(row, now), ENFORCED)
        purged = Purged(order=erasure.order, counts={"sessions": 1})
        return self._signed(core.complete(row, core.Confirmed(reports={erasure.order: {HOLDER: purged}}), now), COMPLETE)

    def _decided(self, command: WorkspaceCommand) -> WorkspaceOutcome:
        scope = core.scope_of(command)
        assert scope is not None
        erasure_id, offset, now = erasure_id_of(command.workspace_id, scope, command.target_id), next(self._offsets), self._clock()
        status = LATE if now >= command.not_after else ACCEPTED if erasure_id not in self.rows else KNOWN
        if status == ACCEPTED:
            self.rows[erasure_id] = self._signed(core.accepted(command, scope, now, f"workspaces.commands:0:{offset}"), ACCEPTED)
        return WorkspaceOutcome(
            command_id=command.command_id, correlation=command.correlation, status=status, erasure_id=erasure_id, position_offset=offset,
            decided_at=now,
        )  # fmt: skip

    def _signed(self, row: RetentionRow, step: str) -> RetentionRow:
        assert row.erasure is not None
        signed = receipt(row, step, self.signers.current("receipts"), self._clock(), holders=[HOLDER])
        return structs.replace(row, erasure=structs.replace(row.erasure, receipts=(*row.erasure.receipts, signed)))
