"""Named anomalies of an append-only log, in the manner of Jepsen's kafka workload. Each checker answers what it found.

lost            an acknowledged append is not in the log, or not at the sequences that were told
duplicated      a content stands in the log twice
reordered       within a partition, a session's sequences do not grow
gap             a session's sequences are not 1, 2, 3, ...
aborted_read    the log or a consumer holds an append that was told to have failed, or that nobody sent
non_monotonic   a consumer saw a session's events out of order, twice, or with a hole
zombie_write    two events of a session claim the same predecessor: two authorities wrote
torn            of one command some events are there and others are not
"""

from collections import defaultdict
from collections.abc import Iterable

from streams.session import chain
from tests.consistency.history import End, History, Logged

Found = dict[str, list[str]]


def check(history: History) -> Found:
    """Every anomaly by name; empty where there is none."""
    checkers = (lost, duplicated, reordered, gap, aborted_read, non_monotonic, zombie_write, torn)
    return {checker.__name__: found for checker in checkers if (found := checker(history))}


def lost(history: History) -> list[str]:
    logged = {(entry.event.command_id, entry.marker): entry.event.sequence for entry in history.log}
    found = []
    for append in history.appends:
        if append.end is End.OK:
            for index, marker in enumerate(append.markers):
                sequence = logged.get((append.command_id, marker))
                if sequence != append.first_sequence + index:
                    found.append(f"{append.command_id}[{index}]: told {append.first_sequence + index}, found {sequence}")
    return found


def duplicated(history: History) -> list[str]:
    places: dict[bytes, list[Logged]] = defaultdict(list)
    for entry in history.log:
        places[entry.marker].append(entry)
    return [
        f"{entries[0].event.session_id}: sequences {[entry.event.sequence for entry in entries]} hold the same content"
        for marker, entries in places.items()
        if marker and len(entries) > 1
    ]


def reordered(history: History) -> list[str]:
    last: dict[str, int] = {}
    found = []
    for entry in sorted(history.log, key=lambda item: (item.partition, item.offset)):
        session_id, sequence = entry.event.session_id, entry.event.sequence
        if sequence <= last.get(session_id, 0):
            found.append(f"{session_id}: {sequence} stands after {last[session_id]}")
        last[session_id] = sequence
    return found


def gap(history: History) -> list[str]:
    sequences: dict[str, list[int]] = defaultdict(list)
    for entry in history.log:
        sequences[entry.event.session_id].append(entry.event.sequence)
    return [f"{session_id}: {sorted(held)}" for session_id, held in sequences.items() if sorted(held) != list(range(1, len(held) + 1))]


def aborted_read(history: History) -> list[str]:
    sent = {marker: append for append in history.appends for marker in append.markers}
    found = []
    seen: Iterable[Logged] = [*history.log, *(entry for poll in history.polls.values() for entry in poll)]
    final = {(entry.event.session_id, entry.event.sequence, entry.marker) for entry in history.log}
    for entry in seen:
        if not entry.marker:
            continue
        append = sent.get(entry.marker)
        if append is None:
            found.append(f"{entry.event.event_id}: nobody sent it")
        elif append.end is End.FAIL:
            found.append(f"{entry.event.event_id}: {append.command_id} was told to have failed")
        if (entry.event.session_id, entry.event.sequence, entry.marker) not in final:
            found.append(f"{entry.event.event_id}: a consumer saw it, the log does not hold it")
    return found


def non_monotonic(history: History) -> list[str]:
    found = []
    for consumer, poll in history.polls.items():
        last: dict[str, int] = {}
        for entry in poll:
            session_id, sequence = entry.event.session_id, entry.event.sequence
            if sequence != last.get(session_id, 0) + 1:
                found.append(f"{consumer}: {session_id} {sequence} after {last.get(session_id, 0)}")
            last[session_id] = sequence
    return found


def zombie_write(history: History) -> list[str]:
    successors: dict[bytes, set[bytes]] = defaultdict(set)
    tips: dict[str, bytes] = {}
    found = []
    for entry in sorted(history.log, key=lambda item: (item.event.session_id, item.event.sequence)):
        event = entry.event
        successors[event.previous_hash].add(event.hash)
        expected = tips.get(event.session_id, chain.genesis(event.session_id))
        if event.previous_hash != expected:
            found.append(f"{event.session_id}: {event.sequence} does not follow its predecessor")
        tips[event.session_id] = event.hash
    return found + [f"{previous.hex()}: {len(hashes)} events follow it" for previous, hashes in successors.items() if len(hashes) > 1]


def torn(history: History) -> list[str]:
    held: dict[str, set[bytes]] = defaultdict(set)
    for entry in history.log:
        held[entry.event.command_id].add(entry.marker)
    return [
        f"{append.command_id}: {len(held[append.command_id])} of {len(append.markers)} events"
        for append in history.appends
        if append.command_id in held and not held[append.command_id].issuperset(append.markers)
    ]
