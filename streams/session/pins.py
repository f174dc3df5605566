"""One pinned context as it stands in `RunState.pins`: kind, revision, digest, with `-` for what is not given."""

from streams.session.events import ContextAttributes


def pin_of(attributes: ContextAttributes) -> str:
    return f"{attributes.pin_kind} {attributes.revision or '-'} {attributes.digest or '-'}"


def read_pin(pin: str) -> ContextAttributes:
    """The inverse."""
    kind, revision, digest = pin.split(" ")
    return ContextAttributes(kind, None if revision == "-" else revision, None if digest == "-" else digest)
