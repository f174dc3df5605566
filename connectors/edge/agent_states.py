"""Outside names to scopes, and states to sealed bytes, of agents' checkpoints (design 06, "On our log").

`subject_id` and `agent_id` as given, the run and the canonical text are sealed together; keys hold pseudonyms. Only a save makes a
pseudonym, and before its command is sent. Every method blocks on the keyring, or with `ask` false raises `NotAtHand` instead.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from streams.agents.core import AgentScope, Head, Sealed
from streams.clock import now_us
from streams.custody.agent_states import StatePlace, open_agent_state, seal_agent_state
from streams.custody.cache import BoundedCache
from streams.custody.keyring import Keyring, PseudonymKind
from streams.custody.sealing import UNREADABLE, NotAtHand, Sealer, content_expiry_day
from streams.errors import ContentUnavailable

_Name = tuple[str, PseudonymKind, str]
"""Workspace, subject or actor, outside id."""


class AgentState(Struct, frozen=True, gc=False):
    """What is sealed. `state` is canonical JSON text."""

    subject_id: str
    agent_id: str
    run_id: str | None
    state: str


class AgentStates:
    """Thread-safe. All raise `KeyringUnavailable`."""

    def __init__(self, keyring: Keyring, sealer: Sealer, *, cache_seconds: float, clock: Callable[[], int] = now_us) -> None:
        """`cache_seconds` is how long pseudonyms are kept; `clock` gives microseconds."""
        self._keyring, self._sealer, self._clock = keyring, sealer, clock
        self._pseudonyms: BoundedCache[_Name, str] = BoundedCache(seconds=cache_seconds, max_entries=100_000)

    def forget_names(self) -> None:
        """Drop cached pseudonyms: an erasure has ended what some stood for."""
        self._pseudonyms.clear()

    def pseudonym(self, workspace_id: str, kind: PseudonymKind, outside_id: str, *, create: bool = False, ask: bool = True) -> str | None:
        def load(names: list[_Name]) -> dict[_Name, str]:
            if not ask:
                raise NotAtHand
            found = {name: self._keyring.pseudonym(*name, create=create) for name in names}
            return {name: pseudonym for name, pseudonym in found.items() if pseudonym is not None}

        name = (workspace_id, kind, outside_id)
        return self._pseudonyms.get_many([name], load).get(name)

    def scope(self, workspace_id: str, subject_id: str, agent_id: str, kind: str, *, create: bool, ask: bool = True) -> AgentScope | None:
        """None: nothing was ever saved for one of them, and `create` is false."""
        subject = self.pseudonym(workspace_id, "subject", subject_id, create=create, ask=ask)
        agent = self.pseudonym(workspace_id, "actor", agent_id, create=create, ask=ask)
        return None if subject is None or agent is None else AgentScope(workspace_id, subject, agent, kind)

    def seal(self, scope: AgentScope, save_id: str, ttl_seconds: int, state: AgentState, *, ask: bool = True) -> Sealed:
        """Raises `ContentUnavailable` where the subject was erased a moment ago."""
        day = content_expiry_day(self._clock() + ttl_seconds * 1_000_000, 0)
        place = StatePlace(scope.workspace_id, scope.subject_id, scope.key, save_id, day)
        return Sealed(*seal_agent_state(self._sealer, place, msgspec.json.encode(state), ask=ask), day, save_id)

    def open(self, head: Head, *, ask: bool = True) -> AgentState:
        """Raises `ContentUnavailable`."""
        scope, sealed = head.scope, head.sealed
        place = StatePlace(scope.workspace_id, scope.subject_id, scope.key, sealed.save_id, sealed.expiry_day)
        text = open_agent_state(self._sealer, place, sealed.ciphertext, sealed.digest, ask=ask)
        try:
            return _state(text)
        except msgspec.MsgspecError as error:
            raise ContentUnavailable(f"state of {sealed.save_id}: {type(error).__name__}", code=UNREADABLE) from error


_state = msgspec.json.Decoder(AgentState).decode
