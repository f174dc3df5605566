"""A Confluent-compatible schema registry in the place of the file: `SESSION_STREAMS_REGISTRY_URL` chooses it.

    client.py       the registry's REST; the only importer of httpx here; foreign errors end there
    http.py         the client as a `schemas.catalog.Registry`
    continuity.py   was the log written with the numbers that this process would write
    publishing.py   registers what `schemas/` holds: a step of its own, never a side effect of writing

Rules: a process registers nothing by running; it starts only where every schema that it knows is registered as it
knows it; the numbers in front of values are the registry's, so the registry is chosen before the first record.

Called by the composition root: `configure(settings)` before the first value, `verify_numbers(settings)` once topics are
there, `publish(...)` before a roll-out.
"""

from connectors.registry.client import RegistryClient
from connectors.registry.continuity import verify_numbers
from connectors.registry.http import HttpRegistry, SubjectNames
from connectors.registry.publishing import publish
from schemas import codec
from streams.errors import StreamsError
from streams.settings import Settings

__all__ = ["HttpRegistry", "RegistryClient", "SubjectNames", "configure", "publish", "verify_numbers"]


def configure(settings: Settings) -> HttpRegistry | None:
    """Makes the codec of this process use the registry of the settings; None where they name none.

    Raises `Misconfigured` where a schema is missing there or differs, `RegistryUnavailable` where nobody answers.
    """
    if not settings.registry_url:
        return None
    client = RegistryClient(settings.registry_url)
    try:
        registry = HttpRegistry(client, SubjectNames(settings.registry_subjects))
        registry.load()
    except StreamsError:
        client.close()
        raise
    codec.use(registry)
    return registry
