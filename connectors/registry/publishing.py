"""Registers every version of every subject, in the order of publication: a step before a roll-out, safe to repeat.

Rules: versions there are versions here, so a subject that holds anything else is refused, not worked around; the
registry is made to keep old and new readable as each other for ever, since the log is replayed from its beginning.
"""

from typing import Final

from connectors.registry.client import LATEST, RegistryClient
from connectors.registry.http import SubjectNames
from schemas.catalog import FileRegistry, Published, UnknownSchema
from schemas.codec import same_bytes
from schemas.compatibility import incompatible
from streams.errors import Misconfigured

LEVEL: Final = "FULL_TRANSITIVE"
"""What we promise of our schemas: each version can be read as each other one."""
_ENOUGH: Final = frozenset({LEVEL, "BACKWARD_TRANSITIVE"})
"""Whoever reads the log from its beginning needs at least the second; an operator's choice of it is left alone."""


def publish(client: RegistryClient, names: SubjectNames, known: FileRegistry | None = None) -> list[Published]:
    """Returns what was new there, under the registry's numbers.

    Raises `Misconfigured` where the registry holds something else under a name of ours, refuses a schema or does not
    keep versions compatible; `RegistryUnavailable` where it does not answer. What was registered by then stays so.
    """
    published = (known or FileRegistry()).published()
    broken = incompatible(published)
    if broken:
        raise Misconfigured(f"published schemas cannot be read as each other: {'; '.join(broken)}")
    new = []
    for each in published:
        name = names.outside(each.subject)
        if _is_there(client, name, each):
            continue
        _keep_compatible(client, name)
        new.append(_register(client, name, each))
    return new


def _is_there(client: RegistryClient, name: str, published: Published) -> bool:
    try:
        registered = client.version(name, published.version)
    except UnknownSchema:
        return False
    if not same_bytes(published.schema, registered.schema):
        raise Misconfigured(f"schema registry {client.address}: {name} version {published.version} is another schema than ours")
    return True


def _keep_compatible(client: RegistryClient, name: str) -> None:
    if client.compatibility_level(name) in _ENOUGH:
        return
    client.set_compatibility_level(name, LEVEL)
    level = client.compatibility_level(name)
    if level not in _ENOUGH:
        raise Misconfigured(f"schema registry {client.address}: compatibility of {name} is {level}, {LEVEL} is needed")


def _register(client: RegistryClient, name: str, published: Published) -> Published:
    refusals = client.incompatibilities(name, published.schema)
    if refusals:
        raise Misconfigured(f"schema registry {client.address}: {name} version {published.version}: {'; '.join(refusals)}")
    schema_id = client.register(name, published.schema)
    version = client.version(name, LATEST).version
    if version != published.version:
        raise Misconfigured(
            f"schema registry {client.address}: {name} got version {version} for our {published.version}: the name was in use before; "
            "choose another one (SESSION_STREAMS_REGISTRY_SUBJECTS)"
        )
    return Published(schema_id, published.subject, published.version, published.schema)
