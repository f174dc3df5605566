"""Whether a browser's page may speak MCP to this gateway: its origin has to be the gateway's own. Others send no Origin."""

from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}


def origin_of(url: str) -> str | None:
    """scheme://host[:port] in the one form that compares, as browsers write it; None for what is no URL with a host."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if not scheme or not parts.hostname or any(character.isspace() for character in url.strip()):
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}" if port is None or port == _PORTS.get(scheme) else f"{scheme}://{host}:{port}"


def refusal(origin: str | None, own: str, configured: str | None) -> str | None:
    """Why a request with this Origin header is refused; None where it is not.

    `own`: where the request was sent to. `configured`: the origin to expect in its place, behind a proxy.
    """
    if origin is None:
        return None
    given = origin_of(origin)
    if given is None:
        return "Invalid MCP Origin header."
    return None if given == origin_of(configured or own) else "Cross-origin MCP requests are not allowed."
