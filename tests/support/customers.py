"""Customers whose conversations are taken in, and by what one would know them: the recorded ones, and made-up ones in their shape.

Needles of a customer: user id, name as programs write it, birth date, e-mail address, and a stretch of each message of any length.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import connectors.sources.samples
from tests.support.searching import NEEDLE_BYTES_MIN

RECORDED: Final = Path("airline_sessions") / "trajectories.json.gz"
_SAMPLES: Final = Path(connectors.sources.samples.__file__).parent
_STRETCH: Final = 40
"""Characters of a message that are looked for, from its middle."""
_TEXT_MIN: Final = 20
_FIRST: Final = ("Marguerite", "Bartholomew", "Clementine", "Ferdinand", "Wilhelmina", "Thaddeus")
_LAST: Final = ("Abernathy", "Castellano", "Featherstone", "Lindqvist", "Montgomery", "Vandenberg")


class Customer(NamedTuple):
    """`trajectories` are elements of a file of tau-bench, each to become a session."""

    user_id: str
    trajectories: list[dict[str, Any]]

    @property
    def needles(self) -> dict[str, bytes]:
        """Label -> bytes."""
        found = {f"id of {self.user_id}": self.user_id}
        for number, trajectory in enumerate(self.trajectories):
            for place, text in _texts(trajectory):
                label = f"{self.user_id} {number}.{place}"
                stretch = _stretch(text)
                if stretch is not None:
                    found[f"{label} text"] = stretch
                for name, profile in _profile(text):
                    found[f"{name} of {self.user_id}"] = profile
        return {label: text.encode() for label, text in found.items() if len(text.encode()) >= NEEDLE_BYTES_MIN}


def needles_of(customers: Iterable[Customer]) -> dict[str, bytes]:
    return {label: needle for customer in customers for label, needle in customer.needles.items()}


def recorded(folder: Path, *, each: int) -> list[Customer]:
    """Those of the recordings, with `each` of their trajectories, short ones in which their profile is looked up before others; none
    where the file is not there."""
    path = folder / RECORDED
    if not path.is_file():
        return []
    with gzip.open(path) as file:
        return _by_customer(json.load(file), each)


def made_up(count: int) -> list[Customer]:
    """As many as are asked for, 36 at most: a sample's conversation, told of others."""
    text = (_SAMPLES / "trajectories.json").read_text()
    (model,) = [customer for customer in _by_customer(json.loads(text), 2) if customer.user_id == "ada_quill_1042"]
    made = []
    for number in range(count):
        first, last = _FIRST[number % len(_FIRST)], _LAST[number // len(_FIRST)]
        told = json.dumps(model.trajectories)
        for before, after in (
            ("ada_quill_1042", user_id := f"{first}_{last}_{6100 + number}".lower()),
            ("Ada Quill", f"{first} {last}"),
            ("1988-02-11", f"19{50 + number}-0{1 + number % 9}-1{number % 7}"),
        ):
            assert before in told, before
            told = told.replace(before, after)
        made.append(Customer(user_id, json.loads(told)))
    return made


def written(customers: Sequence[Customer], path: Path) -> Path:
    """A file that an import takes in."""
    path.write_text(json.dumps([trajectory for customer in customers for trajectory in customer.trajectories]))
    return path


def _by_customer(trajectories: list[dict[str, Any]], each: int) -> list[Customer]:
    by_customer: dict[str, list[dict[str, Any]]] = {}
    for trajectory in sorted(trajectories, key=_profile_first):
        of_one = by_customer.setdefault(trajectory["info"]["task"]["user_id"], [])
        if len(of_one) < each:
            of_one.append(trajectory)
    return [Customer(user_id, found) for user_id, found in sorted(by_customer.items())]


def _profile_first(trajectory: dict[str, Any]) -> tuple[bool, int]:
    return not any(list(_profile(text)) for _, text in _texts(trajectory)), len(json.dumps(trajectory))


def _texts(trajectory: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for number, message in enumerate(trajectory["traj"]):
        if isinstance(message.get("content"), str) and message["role"] != "system":
            yield str(number), message["content"]
    yield "task", trajectory["info"]["task"]["instruction"]


def _stretch(text: str) -> str | None:
    """Of its longest line, without what JSON would write otherwise."""
    line = max(re.split(r'["\\\n]', text), key=len).strip()
    middle = max(0, len(line) - _STRETCH) // 2
    return line[middle : middle + _STRETCH] if len(line) >= _TEXT_MIN else None


def _profile(text: str) -> Iterator[tuple[str, str]]:
    """What a tool answers of the customer, as JSON within a JSON text."""
    try:
        told = json.loads(text)
    except ValueError:
        return
    if isinstance(told, dict):
        for member in ("email", "dob", "born", "name"):
            if isinstance(told.get(member), str):
                yield member, told[member]
        if isinstance(told.get("name"), dict):
            names = [str(told["name"].get(each)) for each in ("first_name", "last_name")]
            yield "name", " ".join(names)
            # As it stands in the recorded text, escaped once more.
            yield "name as JSON", '\\"first_name\\": \\"{}\\", \\"last_name\\": \\"{}\\"'.format(*names)
