"""What the authority knows of a session, an item a thing: the records of `schemas/state/`.

A session of 100,000 Runs is 100,000 items, of which a command reads and changes a few. Times are in microseconds since
the epoch, UTC. An item's `sequence` is that of the last event that changed it; the header's is that of the session's
last event, a Run's that of its last event of any kind.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct, structs

from streams.session.digests import spellings
from streams.session.limits import LONGEST_CHECKPOINT_WINDOW_S


class SessionState(Struct, frozen=True, gc=False, kw_only=True):
    """The header. `last_hash` is 32 bytes; an empty one says that the events are not chained yet.

    `content_day` is the latest expiry day of any content, between its first and last position; positions are 0 where there is none.
    """

    session_id: str
    workspace_id: str
    subject_id: str | None = None
    status: str
    origin: str
    policy_mode: str
    content_window_days: int
    created_at: int
    sequence: int
    last_hash: bytes = b""
    last_accepted_at: int
    last_command_offset: int
    checkpoint_window_s: int = LONGEST_CHECKPOINT_WINDOW_S
    content_day: str | None = None
    content_first: int = 0
    content_last: int = 0
    omitted_first: int = 0
    omitted_last: int = 0


class HistoryState(Struct, frozen=True, gc=False, kw_only=True):
    """Where content of earlier expiry days lies than the header's (`streams.session.history`), up to where it is erased (0: nowhere),
    up to where checkpoints are besides, and the latest checkpoint."""

    days: tuple[str, ...] = ()
    erased_through: int = 0
    checkpoints_erased_through: int = 0
    checkpoint_id: str | None = None


class LineageState(Struct, frozen=True, gc=False, kw_only=True):
    """What a fork was forked from. `inherited` says where the content of its ancestors lies; `erased`: it is erased."""

    source_session_id: str
    fork_id: str
    through_sequence: int
    through_event_id: str
    source_hash: str
    checkpoint_id: str | None = None
    inherited: str = ""
    depth: int
    erased: bool = False


class ForkState(Struct, frozen=True, gc=False, kw_only=True):
    """A session that was forked from this one: the same fork is not told of twice."""

    fork_id: str
    child_session_id: str
    through_sequence: int
    sequence: int


class CheckpointState(Struct, frozen=True, gc=False, kw_only=True):
    """Recovery material. `through_sequence` counts in `origin_session_id`; `sequence` is that of the event here that told of it."""

    checkpoint_id: str
    run_id: str | None = None
    origin_session_id: str
    through_sequence: int
    through_event_id: str
    through_hash: str
    harness: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    continuation_kind: str
    snapshot_kind: str
    expires_at: int
    sequence: int


class ThreadState(Struct, frozen=True, gc=False, kw_only=True):
    """`harness` is the one that the thread's first Run named: a thread is not handed to another."""

    thread_id: str
    kind: str
    harness: str | None = None
    sequence: int


class TurnState(Struct, frozen=True, gc=False, kw_only=True):
    turn_id: str
    thread_id: str | None = None
    status: str
    sequence: int


class RunState(Struct, frozen=True, gc=False, kw_only=True):
    """`generation` is that of the current attempt, 0 before the first; `sequence` is the Run position that reports name."""

    run_id: str
    turn_id: str | None = None
    thread_id: str | None = None
    status: str
    origin: str
    claimable: bool
    lane: str | None = None
    generation: int = 0
    open_waits: tuple[str, ...] = ()
    open_effects: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    sequence: int
    harness: str | None = None
    harness_revision: str | None = None
    environment_revision: str | None = None
    accepted_sequence: int = 0


class AttemptState(Struct, frozen=True, gc=False, kw_only=True):
    """The current attempt of a Run. An imported one has no holder, no lease, and may have no native task ("")."""

    run_id: str
    generation: int
    status: str
    was_ready: bool = False
    native_task_id: str
    principal_id: str | None = None
    claim_digest: str | None = None
    lease_ms: int = 0
    lease_expires_at: int | None = None


class WaitState(Struct, frozen=True, gc=False, kw_only=True):
    wait_id: str
    run_id: str | None = None
    status: str
    expires_at: int | None = None
    sequence: int


class ApprovalState(Struct, frozen=True, gc=False, kw_only=True):
    """`effect_id`: the effect that was last dispatched under it."""

    approval_id: str
    run_id: str | None = None
    status: str
    action_digest: str
    expires_at: int | None = None
    sequence: int
    effect_id: str | None = None


class EffectState(Struct, frozen=True, gc=False, kw_only=True):
    effect_id: str
    run_id: str | None = None
    attempt_generation: int | None = None
    status: str
    action_digest: str
    request_digest: str
    sequence: int
    outcome: str | None = None


class ActionState(Struct, frozen=True, gc=False, kw_only=True):
    """What was last done about one frozen action, or with one request: `action_digest` is in its canonical spelling.

    `effect_id` is the effect that did it last, `approval_id` the approval that was decided last, or asked last where none is decided.
    """

    action_digest: str
    effect_id: str | None = None
    approval_id: str | None = None


class ChildState(Struct, frozen=True, gc=False, kw_only=True):
    child_id: str
    run_id: str | None = None
    status: str
    sequence: int


Item: TypeAlias = (
    SessionState
    | HistoryState
    | LineageState
    | ForkState
    | CheckpointState
    | ThreadState
    | TurnState
    | RunState
    | AttemptState
    | WaitState
    | ApprovalState
    | EffectState
    | ActionState
    | ChildState
)
ItemKey: TypeAlias = tuple[str, str]
"""Kind and id; the ids of header, history and lineage are empty, an attempt's is its Run's."""
Changes: TypeAlias = tuple[tuple[ItemKey, Item], ...]

HEADER: Final[ItemKey] = ("session", "")
HISTORY: Final[ItemKey] = ("history", "")
LINEAGE: Final[ItemKey] = ("lineage", "")

KINDS: Final[Mapping[str, type[Item]]] = {
    "session": SessionState,
    "history": HistoryState,
    "lineage": LineageState,
    "fork": ForkState,
    "checkpoint": CheckpointState,
    "thread": ThreadState,
    "turn": TurnState,
    "run": RunState,
    "attempt": AttemptState,
    "wait": WaitState,
    "approval": ApprovalState,
    "effect": EffectState,
    "action": ActionState,
    "child": ChildState,
}


def to_record(item: Item) -> dict[str, object]:
    """The item as `schemas/state/<kind>` has it."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in structs.asdict(item).items()}


def from_record(kind: str, record: Mapping[str, object]) -> Item:
    """The inverse. Raises msgspec.ValidationError where the record is not of the kind."""
    item: Item = msgspec.convert(record, KINDS[kind], builtin_types=(bytes,))
    return item


class Items(Protocol):
    """Reads the items of one session."""

    def get(self, kind: str, item_id: str) -> Item | None: ...


class DictItems:
    """The items of one session in memory: what a rebuild folds into, and what a batch lays over its store."""

    def __init__(self, items: Mapping[ItemKey, Item] | None = None) -> None:
        self.items: dict[ItemKey, Item] = dict(items or {})

    def get(self, kind: str, item_id: str) -> Item | None:
        return self.items.get((kind, item_id))

    def put(self, changes: Mapping[ItemKey, Item] | Iterable[tuple[ItemKey, Item]]) -> None:
        self.items.update(changes)


# Typed reads. None where there is no such item.


def session_of(items: Items) -> SessionState | None:
    item = items.get("session", "")
    return item if isinstance(item, SessionState) else None


def history_of(items: Items) -> HistoryState:
    """An empty one where there is none yet."""
    item = items.get(*HISTORY)
    return item if isinstance(item, HistoryState) else HistoryState()


def lineage_of(items: Items) -> LineageState | None:
    item = items.get(*LINEAGE)
    return item if isinstance(item, LineageState) else None


def fork_of(items: Items, fork_id: str) -> ForkState | None:
    item = items.get("fork", fork_id)
    return item if isinstance(item, ForkState) else None


def checkpoint_of(items: Items, checkpoint_id: str) -> CheckpointState | None:
    item = items.get("checkpoint", checkpoint_id)
    return item if isinstance(item, CheckpointState) else None


def thread_of(items: Items, thread_id: str) -> ThreadState | None:
    item = items.get("thread", thread_id)
    return item if isinstance(item, ThreadState) else None


def turn_of(items: Items, turn_id: str) -> TurnState | None:
    item = items.get("turn", turn_id)
    return item if isinstance(item, TurnState) else None


def run_of(items: Items, run_id: str) -> RunState | None:
    item = items.get("run", run_id)
    return item if isinstance(item, RunState) else None


def attempt_of(items: Items, run_id: str) -> AttemptState | None:
    item = items.get("attempt", run_id)
    return item if isinstance(item, AttemptState) else None


def wait_of(items: Items, wait_id: str) -> WaitState | None:
    item = items.get("wait", wait_id)
    return item if isinstance(item, WaitState) else None


def approval_of(items: Items, approval_id: str) -> ApprovalState | None:
    item = items.get("approval", approval_id)
    return item if isinstance(item, ApprovalState) else None


def effect_of(items: Items, effect_id: str) -> EffectState | None:
    item = items.get("effect", effect_id)
    return item if isinstance(item, EffectState) else None


def actions_of(items: Items, digest: str) -> list[ActionState]:
    """What is known under the digest: in its canonical spelling first, then in those of older items."""
    return [item for spelling in spellings(digest) if isinstance(item := items.get("action", spelling), ActionState)]


def child_of(items: Items, child_id: str) -> ChildState | None:
    item = items.get("child", child_id)
    return item if isinstance(item, ChildState) else None
