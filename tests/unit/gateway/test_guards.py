"""What one key may ask over time, and what may be under way at once."""

import pytest

from connectors.gateway.guards import Budget, RateLimit
from streams.errors import Overloaded, Retriable


def test_a_bucket_refills_with_time_and_says_how_long_to_wait() -> None:
    now = 0.0
    limit = RateLimit(2.0, 2, clock=lambda: now)
    limit.take("a")
    limit.take("a")
    with pytest.raises(Retriable) as refused:
        limit.take("a")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    limit.take("b")
    now = 0.5
    limit.take("a")


def test_buckets_that_are_full_again_are_forgotten() -> None:
    now = 0.0
    limit = RateLimit(1.0, 2, clock=lambda: now, keys_max=3)
    for name in "abc":
        limit.take(name)
    now = 10.0
    limit.take("d")
    assert set(limit._buckets) == {"d"}


def test_a_budget_is_never_exceeded() -> None:
    budget = Budget(2, "things")
    budget.take(2)
    with pytest.raises(Overloaded):
        budget.take()
    budget.give_back(2)
    budget.take()
