"""Pure steps from one version of a record to the next, where a default cannot say what an older record meant.

Any reader may do without them: each version is readable as each other by Avro's own resolution (`schemas.compatibility`).
A step is named `upcast_<subject>_v1_v2`, takes the record as its version was written, and returns a new one. Once a
subject has a step, each later version of it has one too.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

Upcast = Callable[[Mapping[str, Any]], dict[str, Any]]

UPCASTS: Final[dict[tuple[str, int], Upcast]] = {}
"""(subject, version that is read) -> the step to the next version."""
