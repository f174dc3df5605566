"""Continuation capsules, and custody of those that were imported, as the clients ask for them. Pure: the clients send."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Literal
from urllib.parse import quote

from session_streams.models import Answer, Body, encoded
from session_streams.recovery import Source
from session_streams.requests import JSON, Request, change, new_key, session_path

UseKind = Literal["idle_handoff", "same_run_recovery"]
Transfer = Body | bytes | BinaryIO
"""A capsule's `transfer`: as it was answered, as JSON, or a file open for reading bytes from where it stands."""

VERSION: Final = "2026-08-29"


@dataclass(frozen=True)
class Capsule:
    """`transfer` is what another place imports, as it stands. `expires_at` as RFC 3339."""

    capsule_id: str
    session_id: str
    expires_at: str
    transfer: Body = field(repr=False)
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "Capsule":
        return cls(raw["capsule_id"], raw["session_id"], raw["expires_at"], raw["transfer"], raw)


@dataclass(frozen=True)
class CapsuleImport:
    """Custody of an import; nothing was launched. Times as RFC 3339; `retention` is the retention projector's signed statement."""

    import_id: str
    session_id: str
    session_thread_id: str
    capsule_id: str
    checkpoint_id: str
    through_sequence: int
    imported_at: str
    expires_at: str
    retention: Body = field(repr=False)
    raw: Body = field(repr=False)

    @classmethod
    def of(cls, raw: Body) -> "CapsuleImport":
        return cls(
            raw["import_id"],
            raw["session_id"],
            raw["session_thread_id"],
            raw["capsule_id"],
            raw["checkpoint_id"],
            raw["through_sequence"],
            raw["imported_at"],
            raw["expires_at"],
            raw["retention"],
            raw,
        )


@dataclass(frozen=True)
class CapsuleRefused:
    """An import that did not come about: the first check that failed (docs/capsules.md)."""

    reason: str


def create_capsule(session_id: str, given: Body, key: str | None) -> Request:
    return change(_path(session_id), given, key=key)


def revoke_capsule(session_id: str, capsule_id: str, key: str | None) -> Request:
    return change(f"{_path(session_id)}/{quote(capsule_id, safe='')}/revoke", {}, key=key)


def import_capsule(session_id: str, key: str | None) -> Request:
    """Without its body, which the client sends anew for each attempt."""
    return Request(
        "POST", _path(session_id) + "/import", {"content-type": JSON, "checkfu-version": VERSION, "idempotency-key": key or new_key()}
    )


def capsule_import(session_id: str, import_id: str) -> Request:
    return Request("GET", f"{_path(session_id)}/imports/{quote(import_id, safe='')}")


class ImportBody(Source):
    """The body of an import around a transfer that goes as it comes: a file is never whole in memory."""

    def __init__(self, transfer: Transfer, *, session_thread_id: str, target: Body, use_kind: UseKind) -> None:
        super().__init__(encoded(transfer) if isinstance(transfer, Mapping) else transfer)
        told = {"session_thread_id": session_thread_id, "target": target, "use_kind": use_kind}
        self._before = encoded(told).removesuffix(b"}") + b',"transfer":'

    def pieces(self) -> Iterator[bytes]:
        yield self._before
        yield from super().pieces()
        yield b"}"


def decided(answer: Answer) -> CapsuleImport | CapsuleRefused:
    raw = answer.json()
    return CapsuleImport.of(raw) if raw["outcome"] == "imported" else CapsuleRefused(raw["reason"])


def _path(session_id: str) -> str:
    return session_path(session_id) + "/continuation-capsules"


class Capsules(ABC):
    """The calls of `Client`."""

    @abstractmethod
    def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    def create_capsule(self, session_id: str, given: Body, *, key: str | None = None) -> Capsule:
        """Makes a capsule of an idle session: `given` is the body that docs/capsules.md tells of. The same `key` gives the same capsule
        again."""
        return Capsule.of(self._send(create_capsule(session_id, given, key)).json())

    def revoke_capsule(self, session_id: str, capsule_id: str, *, key: str | None = None) -> None:
        """Takes a capsule back for good: nobody imports it any more, and nothing opens it."""
        self._send(revoke_capsule(session_id, capsule_id, key))

    def import_capsule(
        self,
        session_id: str,
        transfer: Transfer,
        *,
        session_thread_id: str,
        target: Body,
        use_kind: UseKind = "idle_handoff",
        key: str | None = None,
    ) -> CapsuleImport | CapsuleRefused:
        """Retains custody of a capsule for its session, or tells why not. `target` with its `qualification_receipt`. A file that cannot be
        read again is sent once. The same `key` gives the same decision again."""
        body = ImportBody(transfer, session_thread_id=session_thread_id, target=target, use_kind=use_kind)
        return decided(self._send(import_capsule(session_id, key), body))

    def capsule_import(self, session_id: str, import_id: str) -> CapsuleImport:
        """Custody of an import, never its content. Raises `Conflict` once it has ended."""
        return CapsuleImport.of(self._send(capsule_import(session_id, import_id)).json())


class AsyncCapsules(ABC):
    """The calls of `AsyncClient`: each as in `Capsules`."""

    @abstractmethod
    async def _send(self, request: Request, source: Source | None = None) -> Answer: ...

    async def create_capsule(self, session_id: str, given: Body, *, key: str | None = None) -> Capsule:
        return Capsule.of((await self._send(create_capsule(session_id, given, key))).json())

    async def revoke_capsule(self, session_id: str, capsule_id: str, *, key: str | None = None) -> None:
        await self._send(revoke_capsule(session_id, capsule_id, key))

    async def import_capsule(
        self,
        session_id: str,
        transfer: Transfer,
        *,
        session_thread_id: str,
        target: Body,
        use_kind: UseKind = "idle_handoff",
        key: str | None = None,
    ) -> CapsuleImport | CapsuleRefused:
        body = ImportBody(transfer, session_thread_id=session_thread_id, target=target, use_kind=use_kind)
        return decided(await self._send(import_capsule(session_id, key), body))

    async def capsule_import(self, session_id: str, import_id: str) -> CapsuleImport:
        return CapsuleImport.of((await self._send(capsule_import(session_id, import_id))).json())
