"""Which pages of a browser may speak MCP."""

import pytest

from connectors.gateway.agents.origin import origin_of, refusal

CROSS, INVALID = "Cross-origin MCP requests are not allowed.", "Invalid MCP Origin header."
OWN = "http://127.0.0.1:8700"


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (None, None),
        ("http://127.0.0.1:8700", None),
        ("http://127.0.0.1:8700/", None),
        ("HTTP://127.0.0.1:8700", None),
        ("http://127.0.0.1:8701", CROSS),
        ("https://127.0.0.1:8700", CROSS),
        ("http://localhost:8700", CROSS),
        ("http://127.0.0.1", CROSS),
        ("https://evil.example", CROSS),
        ("null", INVALID),
        ("", INVALID),
        ("//127.0.0.1:8700", INVALID),
        ("http://", INVALID),
        ("http://127.0.0.1:port", INVALID),
        ("http://[::1", INVALID),
        ("http://127.0.0.1:8700 http://evil.example", INVALID),
    ],
)
def test_an_origin_is_the_gateways_own_or_it_is_refused(origin: str | None, told: str | None) -> None:
    assert refusal(origin, OWN, None) == told


def test_the_origin_that_is_configured_stands_in_the_place_of_the_gateways_own() -> None:
    configured = "https://memory.example"
    assert refusal("https://memory.example", OWN, configured) is None
    assert refusal("https://memory.example:443", OWN, configured) is None
    assert refusal(OWN, OWN, configured) == CROSS


def test_the_port_that_goes_without_saying_is_not_said() -> None:
    assert origin_of("http://Memory.Example:80/path?query") == "http://memory.example"
    assert origin_of("https://[::1]:443") == "https://[::1]"
