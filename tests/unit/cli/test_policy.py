"""How a policy is shown."""

import pytest

from connectors.cli.policy import in_words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (30 * 86_400, "30 days"), (86_400, "1 day"), (90_000, "25 hours"), (5_400, "90 minutes"), (61, "61 seconds"), (1, "1 second"),
    ],
)  # fmt: skip
def test_a_window_is_shown_in_the_largest_unit_that_divides_it(seconds: int, shown: str) -> None:
    assert in_words(seconds) == shown
