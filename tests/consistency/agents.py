"""Named anomalies of agents' checkpoints, judged from what clients were told and from what the log holds.

lost            an acknowledged save is not on the log under the version that was told
duplicated      a save stands on the log under two versions
gap             the versions of a row are not 1, 2, 3, ...
rewritten       a version is two states
lost_update     a save that expected a state replaced another one
false_conflict  a save was told of a state that the row never had
stale_read      a read that began after an answer does not know of what was answered
unknown_read    a read told of a version that the log does not have
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

Found = dict[str, list[str]]


class Saving(Struct, frozen=True, kw_only=True):
    """`version`: what was told; None: nobody knows what became of it. `conflict`: it was refused, with the hash `actual`."""

    row: str
    state_hash: str
    expected: str | None
    version: int | None = None
    conflict: bool = False
    actual: str | None = None
    began: float
    ended: float


class Reading(Struct, frozen=True, kw_only=True):
    """`version` 0: there was no row."""

    row: str
    version: int
    state_hash: str | None
    began: float
    ended: float


class Logged(Struct, frozen=True, kw_only=True):
    """A record of the log: a version is told when it is the row's, and again when it is replaced; those that were replaced at once, only
    then."""

    row: str
    version: int
    state_hash: str


def check(savings: Sequence[Saving], readings: Sequence[Reading], log: Sequence[Logged]) -> Found:
    """Every anomaly by name; empty where there is none. States are told apart by their hashes: no two savings have the same."""
    versions: dict[str, dict[int, str]] = defaultdict(dict)
    places: dict[str, set[int]] = defaultdict(set)
    rewritten = []
    for entry in log:
        if versions[entry.row].setdefault(entry.version, entry.state_hash) != entry.state_hash:
            rewritten.append(f"{entry.row}: version {entry.version}")
        places[entry.state_hash].add(entry.version)
    found = {
        "lost": [
            f"{each.row}: version {each.version} is not {each.state_hash[:8]}"
            for each in savings
            if each.version is not None and versions[each.row].get(each.version) != each.state_hash
        ],
        "duplicated": [f"{state_hash[:8]} is {sorted(where)}" for state_hash, where in places.items() if len(where) > 1],
        "gap": [f"{row}: {sorted(known)}" for row, known in versions.items() if sorted(known) != list(range(1, len(known) + 1))],
        "rewritten": rewritten,
        "lost_update": [
            f"{each.row}: {each.state_hash[:8]} expected {each.expected[:8]} and replaced {str(replaced)[:8]}"
            for each in savings
            if each.expected is not None
            for version in places.get(each.state_hash, ())
            if (replaced := versions[each.row].get(version - 1)) != each.expected
        ],
        "false_conflict": [
            f"{each.row}: {each.actual}"
            for each in savings
            if each.conflict
            and (each.actual == each.expected or (each.actual is not None and each.actual not in versions[each.row].values()))
        ],
        "unknown_read": [
            f"{each.row}: version {each.version}"
            for each in readings
            if each.version and versions[each.row].get(each.version) != each.state_hash
        ],
        "stale_read": _stale_reads(savings, readings),
    }
    return {name: told for name, told in found.items() if told}


def _stale_reads(savings: Sequence[Saving], readings: Sequence[Reading]) -> list[str]:
    """By row, over answers in the order of their ends: the highest version that was told before a read began."""
    found = []
    for row in {each.row for each in readings}:
        answers: list[tuple[float, int]] = [(each.ended, each.version) for each in savings if each.row == row and each.version is not None]
        answers += [(each.ended, each.version) for each in readings if each.row == row]
        answers.sort()
        told, at = 0, 0
        for reading in sorted((each for each in readings if each.row == row), key=lambda each: each.began):
            while at < len(answers) and answers[at][0] < reading.began:
                told, at = max(told, answers[at][1]), at + 1
            if reading.version < told:
                found.append(f"{row}: version {reading.version} was read after {told} was told")
    return found
