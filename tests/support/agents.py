"""Agent checkpoints in memory: what routes and tools are tested with, without a broker or a keyring."""

import itertools
import uuid
from collections.abc import Callable
from typing import Final

from msgspec import structs

from connectors.edge.agents import Caller, Checkpoint, Conflict, History, NewState, Written
from streams.clock import now_us

VERSIONS_KEPT: Final = 20


class AgentsInMemory:
    """`connectors.edge.agents.AgentCheckpoints`. `clock` gives microseconds; `subjects` the pseudonym of an outside subject, for keys
    that are restricted; `failing`, where set, is raised by every call."""

    def __init__(self, clock: Callable[[], int] = now_us, subjects: Callable[[str], str] = lambda outside: outside) -> None:
        self._clock, self._subjects = clock, subjects
        self._versions: dict[tuple[str, str, str, str], list[Checkpoint]] = {}
        """(workspace, subject, agent, kind) -> its versions, the head last."""
        self._offsets = itertools.count()
        self.failing: Exception | None = None
        self.on_through: Callable[[float], None] = lambda seconds: None

    async def save(self, caller: Caller, new: NewState) -> Written | Conflict | None:
        self._check()
        if not self._may(caller, new.subject_id):
            return None
        key = (caller.workspace_id, new.subject_id, caller.agent_id, new.kind)
        versions, now = self._versions.get(key, []), self._now()
        head = versions[-1] if versions else None
        if new.expected_state_hash is not None:
            actual = head.state_hash if head is not None and head.expires_at > now else None
            if actual != new.expected_state_hash:
                return Conflict(actual)
        saved = Checkpoint(
            checkpoint_id=head.checkpoint_id if head is not None else f"ckpt_{uuid.uuid4().hex}",
            subject_id=new.subject_id,
            agent_id=caller.agent_id,
            run_id=new.run_id,
            kind=new.kind,
            state=new.state,
            state_hash=new.state_hash,
            ttl_seconds=new.ttl_seconds,
            version=head.version + 1 if head is not None else 1,
            created_at=head.created_at if head is not None else now,
            updated_at=now,
            expires_at=now + new.ttl_seconds * 1_000_000,
        )
        self._versions[key] = [*versions, saved][-VERSIONS_KEPT - 1 :]
        return Written(
            checkpoint_id=saved.checkpoint_id,
            updated=head is not None,
            version=saved.version,
            state_hash=saved.state_hash,
            updated_at=now,
            expires_at=saved.expires_at,
            position=f"agents.commands:0:{next(self._offsets)}",
        )

    async def at(self, caller: Caller, subject_id: str, kind: str) -> Checkpoint | None:
        self._check()
        versions = self._versions.get((caller.workspace_id, subject_id, caller.agent_id, kind))
        return versions[-1] if versions and self._may(caller, subject_id) and self._visible(versions[-1]) else None

    async def by_id(self, caller: Caller, checkpoint_id: str) -> Checkpoint | None:
        self._check()
        versions = self._named(caller, checkpoint_id)
        return versions[-1] if versions and self._visible(versions[-1]) else None

    async def delete(self, caller: Caller, checkpoint_id: str) -> bool:
        self._check()
        versions = self._named(caller, checkpoint_id)
        if not versions:
            return False
        head = versions[-1]
        del self._versions[(caller.workspace_id, head.subject_id, head.agent_id, head.kind)]
        return True

    async def history(self, caller: Caller, checkpoint_id: str, *, limit: int, before: int | None = None) -> History | None:
        self._check()
        versions = self._named(caller, checkpoint_id)
        if not versions or not self._visible(versions[-1]):
            return None
        found = [each for each in reversed(versions) if (before is None or each.version < before) and self._visible(each)]
        return History(tuple(found[:limit]), found[limit - 1].version if len(found) > limit else None)

    def forget(self, subject_id: str) -> None:
        """As an erasure of the subject."""
        self._versions = {key: versions for key, versions in self._versions.items() if key[1] != subject_id}

    def tamper(self, caller: Caller, subject_id: str, kind: str, **fields: object) -> None:
        """Changes fields of a head, so that a test can show that something looks at them."""
        versions = self._versions[(caller.workspace_id, subject_id, caller.agent_id, kind)]
        versions[-1] = structs.replace(versions[-1], **fields)

    def _named(self, caller: Caller, checkpoint_id: str) -> list[Checkpoint] | None:
        for (workspace_id, subject_id, agent_id, _), versions in self._versions.items():
            if versions[-1].checkpoint_id == checkpoint_id:
                mine = workspace_id == caller.workspace_id and agent_id == caller.agent_id and self._may(caller, subject_id)
                return versions if mine else None
        return None

    def _may(self, caller: Caller, subject_id: str) -> bool:
        return caller.only_subject in (None, self._subjects(subject_id))

    def _visible(self, each: Checkpoint) -> bool:
        return each.expires_at > self._now()

    def _now(self) -> int:
        return self._clock() // 1000 * 1000

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing
