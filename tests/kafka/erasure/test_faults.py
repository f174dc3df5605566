"""An erasure ends correctly whatever happens meanwhile (design 04, "Erasure"): brokers die, holders stand still, partitions move, and who
is erased goes on talking.

One installation for all: two gateways, authority, agents and projector keep secrets in memory; each test erases somebody of its own.
"""

import base64
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from connectors.cli.kafka import LocalKafka
from session_streams import ApiError, Client, NotFound
from tests.support.erasing import Erasing, erasing_installation, quick_broker, quick_settings
from tests.support.erasure_world import KIND, verified
from tests.support.processes import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TEXTS = ("what was said", "and what was answered")


class Installed(NamedTuple):
    kafka: LocalKafka
    erasing: Erasing


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with quick_broker() as kafka:
        settings = quick_settings(kafka.bootstrap, tmp_path_factory.mktemp("faults") / "data", member_session_timeout_s=6.0)
        with erasing_installation(settings, gateways=2) as erasing:
            yield Installed(kafka, erasing)


class Person(NamedTuple):
    """A customer with one session."""

    name: str
    subject_id: str
    session_id: str


def person(erasing: Erasing, name: str) -> Person:
    """Whose secrets every process has in memory that ever has: both gateways have opened what was said, the agents' what was kept."""
    session = erasing.client.create_session(subject=name)
    erasing.say(session.session_id, *TEXTS)
    erasing.client.save_checkpoint(name, KIND, {"told": TEXTS}, ttl_seconds=3600)
    assert session.subject_id is not None
    made = Person(name, session.subject_id, session.session_id)
    for client in erasing.clients:
        eventually(lambda client=client: opened(client, made) == list(TEXTS), within_s=30)  # type: ignore[misc]
        assert client.get_checkpoint(name, KIND).state == {"told": list(TEXTS)}
    return made


def opened(client: Client, person: Person) -> list[str]:
    """What this gateway shows of the session."""
    return [event.content["text"] for event in client.events(person.session_id) if event.content is not None and "text" in event.content]


def is_gone(erasing: Erasing, person: Person) -> None:
    """For every gateway, at once, and for agents; the chain stands."""
    for client in erasing.clients:
        assert opened(client, person) == []
        with pytest.raises(NotFound):
            client.get_checkpoint(person.name, KIND)
    verdict = verified(erasing.exported(person.session_id))
    assert (verdict.opened, set(verdict.unavailable)) == (0, {"erased"})


def receipt_of(told: dict[str, Any], step: str) -> dict[str, Any]:
    """What the receipt of a step says."""
    payloads = [json.loads(base64.b64decode(receipt["payload"])) for receipt in told["receipts"]]
    (found,) = [payload for payload in payloads if payload["step"] == step]
    return dict(found)


def steps_of(told: dict[str, Any]) -> list[str]:
    return [each for each in ("accepted_at", "destroyed_at", "enforced_at", "complete_at") if told[each] is not None]


def test_whoever_keeps_secrets_in_memory_shows_gaps_once_it_is_enforced(installed: Installed) -> None:
    erasing = installed.erasing
    who = person(erasing, "ada_quill_1042")
    asked = erasing.ask_erasure(who.name)
    (told,) = erasing.reached([asked["erasure_id"]], "enforced")
    is_gone(erasing, who)
    assert steps_of(told)[:3] == ["accepted_at", "destroyed_at", "enforced_at"]
    # Asking again is no other erasure, whether by the pseudonym or, while it is remembered, by the name.
    again = erasing.ask_erasure(who.subject_id)
    assert (again["erasure_id"], again["scope"]) == (asked["erasure_id"], {"kind": "subject", "id": who.subject_id})


def test_a_gateway_that_stands_still_is_waited_for_a_lease_at_most_and_shows_nothing_when_it_goes_on(installed: Installed) -> None:
    erasing, (_, second) = installed.erasing, installed.erasing.gateways
    who = person(erasing, "ben_okafor_2210")
    second.process.pause()
    try:
        asked = erasing.ask_erasure(who.name)
        (told,) = erasing.reached([asked["erasure_id"]], "enforced")
        assert second.process.stopped
    finally:
        second.process.proceed()
    is_gone(erasing, who)
    # It has said nothing; that its lease was over is what this was enforced by, and the receipt says so.
    (lapsed,) = receipt_of(told, "enforced")["lapsed"]
    assert lapsed.startswith("gateway.1/")


def test_who_is_erased_while_talking_leaves_nothing_that_can_be_read(installed: Installed) -> None:
    erasing = installed.erasing
    who = person(erasing, "chiara_lund_3907")
    refusals: list[ApiError] = []
    said, begun = list[str](), threading.Event()

    def talk(number: int) -> None:
        with Client(erasing.gateways[number].url, erasing.key) as client:
            while True:
                text = f"still talking {number}.{len(said)}"
                try:
                    erasing.say(who.session_id, text, client=client)
                    said.append(text)
                    begun.set()
                except ApiError as error:
                    refusals.append(error)
                    return

    threads = [threading.Thread(target=talk, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    asked = erasing.ask_erasure(who.name)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert {error.code for error in refusals} == {"content.erased"}, refusals
    erasing.reached([asked["erasure_id"]], "complete")
    is_gone(erasing, who)
    assert said


def test_an_erasure_goes_on_where_partitions_move_to_another_process_meanwhile(installed: Installed) -> None:
    erasing, fleet = installed.erasing, installed.erasing.fleet
    people = [person(erasing, f"dimitri_voss_447{number}") for number in range(3)]
    roles = {
        role: next(each for each in fleet.roles if each.output.name.startswith(f"{role}-0"))
        for role in ("custodian", "authority", "agents")
    }
    asked = []
    for number, who in enumerate(people):
        asked.append(erasing.ask_erasure(who.name)["erasure_id"])
        if number == 0:
            joined = [fleet.start(role, "1") for role in roles]
        if number == 1:
            for role in roles.values():
                role.stop()
    erasing.reached(asked, "complete")
    for who in people:
        is_gone(erasing, who)
    assert all(role.alive for role in joined), erasing.logs()
    for role in roles.values():
        role.restart()


def test_stores_of_agents_that_are_away_are_awaited_and_one_that_is_killed_while_it_removes_begins_again(installed: Installed) -> None:
    erasing, fleet = installed.erasing, installed.erasing.fleet
    who = person(erasing, "hanne_brandt_9316")
    for kind in ("task_state", "conversation", "workflow"):
        erasing.client.save_checkpoint(who.name, kind, {"told": TEXTS}, ttl_seconds=3600)
    every = [role for role in fleet.roles if role.output.name.startswith("agents-") and role.alive]
    for role in every:
        role.stop()
    erasure_id = erasing.ask_erasure(who.name)["erasure_id"]
    awaited = {f"agents/{partition}" for partition in range(erasing.settings.partitions)}
    eventually(lambda: {each["holder"] for each in erasing.erasure(erasure_id)["awaited"]} == awaited, within_s=40)
    assert erasing.erasure(erasure_id)["status"] == "enforced"
    # It has nothing else to decide: its first transaction is the removal, and dies before it is committed.
    every[0].restart("--crash-at", "after_produce:1")
    assert every[0].wait() == -signal.SIGKILL
    every[0].restart()
    for role in every[1:]:
        role.again()
    (told,) = erasing.reached([erasure_id], "complete")
    assert told["counts"]["agent_checkpoints"] == 4
    is_gone(erasing, who)


def test_nobody_else_is_touched(installed: Installed) -> None:
    erasing = installed.erasing
    who, other = person(erasing, "fiona_ashby_7001"), person(erasing, "gustav_lindt_7002")
    before = erasing.exported(other.session_id)
    erasing.reached([erasing.ask_erasure(who.name)["erasure_id"]], "enforced")
    is_gone(erasing, who)
    assert erasing.exported(other.session_id) == before
    assert erasing.client.get_checkpoint(other.name, KIND).state == {"told": list(TEXTS)}
    with pytest.raises(NotFound):
        erasing.ask_erasure("nobody_of_this_name")
    assert erasing.subject_of(other.name) == other.subject_id


@pytest.mark.soak
def test_an_erasure_survives_the_death_of_the_broker(installed: Installed) -> None:
    erasing, kafka = installed.erasing, installed.kafka
    people = [person(erasing, f"eloise_hart_610{number}") for number in range(2)]
    asked = [erasing.ask_erasure(who.name)["erasure_id"] for who in people]
    with erasing.supervised():
        kafka.kill_node()
        kafka.start_nodes(1)
        erasing.reached(asked, "complete", within_s=120)
        for who in people:
            is_gone(erasing, who)
