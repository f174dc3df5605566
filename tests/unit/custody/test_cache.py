"""The cache of secrets: bounded in time and number, and forgetful at once when told."""

from streams.custody.cache import BoundedCache


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def loads(log: list[list[str]]):  # type: ignore[no-untyped-def]
    def load(keys: list[str]) -> dict[str, str]:
        log.append(keys)
        return {key: key.upper() for key in keys if key != "absent"}

    return load


def test_a_remembered_value_is_not_loaded_again_until_its_time_is_over() -> None:
    clock, log = Clock(), list[list[str]]()
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=10, clock=clock)
    assert cache.get_many(["a", "b", "a"], loads(log)) == {"a": "A", "b": "B"}
    clock.now += 9.9
    assert cache.get_many(["a", "c"], loads(log)) == {"a": "A", "c": "C"}
    clock.now += 0.1
    cache.get_many(["a", "c"], loads(log))
    assert log == [["a", "b"], ["c"], ["a"]]


def test_time_counts_from_before_the_load() -> None:
    """The keyring takes its time to answer; what it says is as old as the question."""
    clock = Clock()
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=10, clock=clock)

    def slow(keys: list[str]) -> dict[str, str]:
        clock.now += 10
        return dict.fromkeys(keys, "old")

    cache.get_many(["a"], slow)
    assert cache.get_many(["a"], lambda keys: dict.fromkeys(keys, "new")) == {"a": "new"}


def test_the_least_recently_used_goes_first() -> None:
    log: list[list[str]] = []
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=2, clock=Clock())
    for keys in (["a"], ["b"], ["a"], ["c"], ["a"], ["b"]):
        cache.get_many(keys, loads(log))
    assert log == [["a"], ["b"], ["c"], ["b"]]
    assert len(cache) == 2


def test_what_is_not_found_is_asked_again() -> None:
    log: list[list[str]] = []
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=2, clock=Clock())
    assert cache.get_many(["absent"], loads(log)) == {}
    cache.get_many(["absent"], loads(log))
    assert log == [["absent"], ["absent"]]


def test_a_value_forgotten_while_it_was_being_loaded_is_not_remembered() -> None:
    """A secret is destroyed, and everybody told, between the keyring's answer and its arrival here."""
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=10, clock=Clock())

    def load(keys: list[str]) -> dict[str, str]:
        cache.forget(keys)
        return dict.fromkeys(keys, "stale")

    cache.get_many(["a"], load)
    assert cache.get_many(["a"], lambda keys: {}) == {}


def test_clear_forgets_everything() -> None:
    cache: BoundedCache[str, str] = BoundedCache(seconds=10, max_entries=10, clock=Clock())
    cache.get_many(["a", "b"], loads([]))
    cache.clear()
    assert cache.get_many(["a", "b"], lambda keys: {}) == {}
