"""Schemas by the numbers of a registry on the network, behind the protocol that the file registry has too.

Rules: which version is current is for this code to say, not for the registry, which may hold newer ones already; what
this code knows is accepted from the registry only if it is the same schema (bytes alike, whatever the registry did to
its text); what it does not know, it asks for once and keeps.

What is absent is never remembered: the next number that the registry gives may be the one that was asked for.
"""

import re
from typing import Any, Final

from connectors.registry.client import Registered, RegistryClient
from schemas.catalog import FileRegistry, Published, UnknownSchema
from schemas.codec import same_bytes
from streams.errors import Misconfigured

_LARGEST_ID: Final = 2**31 - 1
"""Registries count in signed 32 bits; what stands above it in front of a value was never given by one."""
_PLACE: Final = "{subject}"


class SubjectNames:
    """Our subjects by the registry's names, and back."""

    def __init__(self, template: str) -> None:
        """`template` holds `{subject}` once. Raises `Misconfigured`."""
        before, place, after = template.partition(_PLACE)
        if not place or _PLACE in after or "/" in template:
            raise Misconfigured(f"registry_subjects={template!r}: must hold {_PLACE} once, and no slash")
        self._before, self._after = before, after
        self._pattern = re.compile(f"{re.escape(before)}([a-z.-]+){re.escape(after)}")

    def outside(self, subject: str) -> str:
        """Slashes become dots: many registries refuse a name in which they are escaped."""
        return f"{self._before}{subject.replace('/', '.')}{self._after}"

    def inside(self, name: str) -> str | None:
        """None where the name is not one of ours."""
        match = self._pattern.fullmatch(name)
        return None if match is None else match[1].replace(".", "/")


class HttpRegistry:
    """A `schemas.catalog.Registry`. Thread-safe; a question that was answered once is not asked again.

    Every method may raise `RegistryUnavailable` (the same again later) and `Misconfigured` beside what it names.
    """

    def __init__(self, client: RegistryClient, names: SubjectNames, known: FileRegistry | None = None) -> None:
        """`known` holds the schemas of this code."""
        self._client, self._names = client, names
        self._known = known or FileRegistry()
        self._by_id: dict[int, Published] = {}
        self._ids: dict[tuple[str, int], int] = {}

    def load(self) -> None:
        """Looks up everything that this code knows, so that nothing but the unknown is asked for later.

        Raises `Misconfigured` naming what is not registered.
        """
        missing = []
        for each in self._known.published():
            try:
                self.id_of(each.subject, each.version)
            except UnknownSchema:
                missing.append(f"{self._names.outside(each.subject)} version {each.version}")
        if missing:
            raise Misconfigured(
                f"schema registry {self._client.address} lacks {', '.join(missing)}; "
                f"run `session-streams schemas publish --registry {self._client.address}`"
            )

    def schema_by_id(self, schema_id: int) -> Published:
        found = self._by_id.get(schema_id)
        if found is None:
            if not 0 <= schema_id <= _LARGEST_ID:
                raise UnknownSchema(f"schema id {schema_id}")
            subject, version = self._place_of(schema_id)
            found = self._keep(subject, Registered(schema_id, self._names.outside(subject), version, self._client.schema(schema_id)))
        return found

    def id_of(self, subject: str, version: int) -> int:
        found = self._ids.get((subject, version))
        if found is None:
            if version < 1:
                raise UnknownSchema(f"{subject} v{version}")
            found = self._keep(subject, self._client.version(self._names.outside(subject), version)).id
        return found

    def current_version(self, subject: str) -> int:
        return self._known.current_version(subject)

    def _place_of(self, schema_id: int) -> tuple[str, int]:
        """One schema may be registered under other people's names as well; ours counts."""
        for name, version in self._client.places(schema_id):
            subject = self._names.inside(name)
            if subject is not None:
                return subject, version
        raise UnknownSchema(f"schema id {schema_id}: not registered under a name of ours")

    def _keep(self, subject: str, registered: Registered) -> Published:
        published = Published(registered.id, subject, registered.version, self._agreed(subject, registered))
        self._by_id[registered.id] = published
        self._ids[subject, registered.version] = registered.id
        return published

    def _agreed(self, subject: str, registered: Registered) -> Any:
        try:
            known = self._known.schema_by_id(self._known.id_of(subject, registered.version)).schema
        except UnknownSchema:
            return registered.schema  # newer than this code
        if not same_bytes(known, registered.schema):
            raise Misconfigured(
                f"schema registry {self._client.address}: {registered.subject} version {registered.version} is another schema than ours"
            )
        return known
