"""Reports, leases and actions of a worker, against a service and a provider that are made up."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.runner.acting import Acting, Indeterminate, Provider
from connectors.runner.crash import DieAt, NoCrash, Phase
from connectors.runner.lease import Lease
from connectors.runner.plan import Act, Plan, make_plan, read_records
from connectors.runner.progress import Effect, Progress
from connectors.runner.provider import DemoProvider
from connectors.runner.service import Fenced, Held
from connectors.runner.worker import End, Options, Target, Worker
from session_streams import Answer, Claim, Conflict, ConnectionFailed, Event
from streams.errors import Misconfigured
from tests.support.examples import made_up_id

SAMPLE = Path(__file__).parents[3] / "connectors" / "runner" / "sample.jsonl"
RUN = made_up_id("run")
TESTED, PUSHED = 4, 12
"""Steps of the sample: an action that wants no approval, and one that does."""


class Service:
    """Answers as it was told to, in order, and then accepts everything. `asked` keeps what came: path, key, body."""

    def __init__(self, *answers: Exception | dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []
        self.reports: list[str] = []
        self.told: list[Event] = []
        self.sequence = 10

    def request(self, method: str, path: str, body: Any = None, *, key: str = "", headers: Any = None, **_: Any) -> Answer:
        self.asked.append((path.rpartition("/")[2], key, body))
        self.reports.append((headers or {}).get("session-streams-report", ""))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        self.sequence += 1
        made = {"effect_id": "eff_1", "approval_id": "appr_1", "sequence": self.sequence, "run_sequence": self.sequence, **answer}
        return Answer(200, {}, json.dumps(made).encode())

    def events(self, session_id: str, *, after_sequence: int) -> list[Event]:
        return [event for event in self.told if event.sequence > after_sequence]

    def tell(self, event_type: str, run_id: str = RUN, **attributes: Any) -> None:
        self.sequence += 1
        raw = {"sequence": self.sequence, "event_id": "evt", "type": event_type, "run_id": run_id, "attributes": attributes}
        self.told.append(Event.of(raw))


def conflict(code: str) -> Conflict:
    return Conflict(409, {"code": code})


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(read_records(SAMPLE), RUN)


def held_of(service: Service, progress: Progress | None = None) -> Held:
    raw = {
        "session_id": made_up_id("sess"), "run_id": RUN, "generation": 3, "native_task_id": made_up_id("task"), "lease_expires_at": "",
        "run_sequence": 7, "run": {}, "recovery": {}, "frontier_sequence": 9,
    }  # fmt: skip
    held = Held(service, Claim.of(raw), lambda event: None if progress is None else progress.take(event.raw))  # type: ignore[arg-type]
    held.seen = 9
    return held


# -- reports


def test_a_report_names_the_run_the_attempt_and_the_position_that_the_worker_has_seen() -> None:
    service = Service()
    held = held_of(service)
    held.tell("/v1/x", {}, "5/said")
    assert service.reports == [f"{RUN};3;{made_up_id('task')};7"]
    assert [key for _, key, _ in service.asked] == [f"{RUN}/3/5/said"]
    assert (held.run_sequence, held.sequence) == (11, 11)


def test_where_the_run_has_moved_the_worker_reads_that_first_and_reports_under_another_key() -> None:
    """The refusal stands recorded under the first key."""
    service = Service(conflict("runtime.position_conflict"))
    held = held_of(service)
    service.tell("wait.answered", wait_id="wait_1")
    service.tell("message.appended", made_up_id("run", "another"))
    held.tell("/v1/x", {}, "5/said")
    assert [key.removeprefix(f"{RUN}/3/") for _, key, _ in service.asked] == ["5/said", "5/said/1"]
    assert service.reports[1].endswith(";11"), "what another Run did is not of this one's position"


def test_a_run_that_never_stands_still_ends_the_tries() -> None:
    held = held_of(Service(*[conflict("runtime.position_conflict")] * 100))
    with pytest.raises(Conflict):
        held.tell("/v1/x", {}, "5/said")


@pytest.mark.parametrize("code", ["runtime.attempt_fenced", "runtime.already_settled"])
def test_whoever_is_fenced_is_told_so_and_tries_nothing_else(code: str) -> None:
    service = Service(conflict(code))
    with pytest.raises(Fenced):
        held_of(service).tell("/v1/x", {}, "5/said")
    assert len(service.asked) == 1


def test_another_refusal_is_the_callers() -> None:
    with pytest.raises(Conflict):
        held_of(Service(conflict("runtime.limit_reached"))).tell("/v1/x", {}, "5/said")


# -- leases


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_lease_counts_from_before_its_renewal_was_sent() -> None:
    clock = Clock()

    class Slow(Service):
        def request(self, *arguments: Any, **named: Any) -> Answer:
            clock.now_s += 0.9
            return super().request(*arguments, **named)

    lease = Lease(held_of(Slow()), 1000, lambda: None, clock=clock)
    lease.renew(1)
    assert not lease.is_lost
    clock.now_s += 0.2
    assert lease.is_lost, "1.1 s after it was asked for"
    with pytest.raises(Fenced):
        lease.require()


def test_a_lease_is_renewed_under_a_key_of_its_own_each_time_and_names_no_position() -> None:
    service = Service()
    lease = Lease(held_of(service), 1000, lambda: None)
    lease.renew(1)
    lease.renew(2)
    assert [key.removeprefix(f"{RUN}/3/") for _, key, _ in service.asked] == ["renew/1", "renew/2"]
    assert service.reports == [f"{RUN};3;{made_up_id('task')}"] * 2


@pytest.mark.parametrize("refusal", [conflict("runtime.attempt_fenced"), ConnectionFailed("away")])
def test_a_lost_lease_is_told_once_whether_it_was_refused_or_could_not_be_renewed(refusal: Exception) -> None:
    lost = threading.Event()
    with Lease(held_of(Service(*[refusal] * 1000)), 60, lost.set) as lease:
        assert lost.wait(10)
        assert lease.is_lost


def test_a_service_that_is_away_for_a_moment_costs_no_lease() -> None:
    service, lost = Service(ConnectionFailed("away")), threading.Event()
    with Lease(held_of(service), 3000, lost.set) as lease:
        while len(service.asked) < 3:
            assert not lost.is_set()
            lost.wait(0.02)
        assert not lease.is_lost


# -- actions


@pytest.fixture
def progress(plan: Plan) -> Progress:
    return Progress(plan)


@pytest.fixture
def acting(plan: Plan, progress: Progress) -> Callable[[Service, Provider], Callable[[int], str]]:
    def made(service: Service, provider: Provider) -> Callable[[int], str]:
        held = held_of(service, progress)
        doing = Acting(held, progress, provider, Lease(held, 60_000, lambda: None), NoCrash(), sleep=lambda _: None)

        def do(index: int) -> str:
            step = plan.steps[index]
            assert isinstance(step, Act)
            return doing.do(step)

        return do

    return made


def digest(plan: Plan, index: int) -> str:
    step = plan.steps[index]
    assert isinstance(step, Act)
    return step.digest


def test_an_action_is_told_before_it_is_sent_and_sent_under_the_identity_of_its_effect(acting: Any, plan: Plan) -> None:
    service = Service()
    with DemoProvider() as demo, Provider(demo.url) as provider:
        assert acting(service, provider)(TESTED) == "receipt"
        assert list(demo.keys) == ["eff_1"]
    assert [path for path, _, _ in service.asked] == ["effects", "receipt"]
    assert service.asked[0][2]["action_digest"] == digest(plan, TESTED)


def test_what_is_not_accepted_is_not_sent(acting: Any) -> None:
    with DemoProvider() as demo, Provider(demo.url) as provider:
        with pytest.raises(Fenced):
            acting(Service(conflict("runtime.attempt_fenced")), provider)(TESTED)
        assert demo.performed == {}


def test_an_approval_is_asked_for_this_very_action_and_the_dispatch_names_it(acting: Any, plan: Plan) -> None:
    service = Service()
    service.tell("approval.requested", approval_id="appr_1", action_digest=digest(plan, PUSHED))
    service.tell("approval.granted", approval_id="appr_1")
    with DemoProvider() as demo, Provider(demo.url) as provider:
        assert acting(service, provider)(PUSHED) == "receipt"
    (asked, _, what), (dispatched, _, under), _ = service.asked
    assert (asked, dispatched) == ("approvals", "effects")
    assert what["action_digest"] == under["action_digest"] == digest(plan, PUSHED)
    assert under["approval_id"] == "appr_1"


def test_a_denied_action_is_neither_told_nor_sent(acting: Any, plan: Plan) -> None:
    service = Service()
    service.tell("approval.requested", approval_id="appr_1", action_digest=digest(plan, PUSHED))
    service.tell("approval.denied", approval_id="appr_1")
    with DemoProvider() as demo, Provider(demo.url) as provider:
        assert acting(service, provider)(PUSHED) == "denied"
        assert demo.performed == {}
    assert [path for path, _, _ in service.asked] == ["approvals"]


def test_what_another_attempt_sent_is_settled_by_asking_and_never_sent_again(acting: Any, progress: Progress, plan: Plan) -> None:
    service = Service()
    progress.effects[TESTED] = Effect("eff_old")
    with DemoProvider() as demo, Provider(demo.url) as provider:
        demo.perform("eff_old", digest(plan, TESTED))
        assert acting(service, provider)(TESTED) == "provider_lookup"
        assert demo.performed == {digest(plan, TESTED): 1}
    ((how, _, told),) = service.asked
    assert (how, told["evidence_kind"], told["outcome"]) == ("reconcile", "provider_lookup", "succeeded")


def test_what_the_provider_has_not_is_sent_again_under_the_same_identity(acting: Any, progress: Progress, plan: Plan) -> None:
    service = Service()
    progress.effects[TESTED] = Effect("eff_old")
    with DemoProvider() as demo, Provider(demo.url) as provider:
        assert acting(service, provider)(TESTED) == "idempotency_mechanism"
        assert list(demo.keys) == ["eff_old"]
    assert [path for path, _, _ in service.asked] == ["reconcile"]


def test_what_is_known_not_to_have_been_done_is_done_under_an_identity_of_its_own(acting: Any, progress: Progress) -> None:
    progress.effects[TESTED] = Effect("eff_old")
    progress.effects[TESTED].outcome = "not_performed"
    with DemoProvider() as demo, Provider(demo.url) as provider:
        assert acting(Service(), provider)(TESTED) == "receipt"
        assert list(demo.keys) == ["eff_1"]


def test_an_answer_that_is_lost_is_asked_for_and_the_action_stays_one(acting: Any, plan: Plan) -> None:
    with DemoProvider() as demo, Provider(demo.url) as provider:
        demo.drop_answers = 1
        assert acting(Service(), provider)(TESTED) == "provider_lookup"
        assert demo.performed == {digest(plan, TESTED): 1}


def test_a_provider_without_identities_is_neither_asked_nor_sent_the_same_again(acting: Any, progress: Progress, plan: Plan) -> None:
    progress.effects[TESTED] = Effect("eff_old")
    service = Service()
    with DemoProvider(forgetful=True) as demo, Provider(demo.url, knows_identities=False) as provider:
        with pytest.raises(Indeterminate, match="no identities"):
            acting(service, provider)(TESTED)
        assert demo.performed == {}
    assert service.asked == []


def test_a_provider_that_is_away_leaves_it_indeterminate(acting: Any, progress: Progress) -> None:
    progress.effects[TESTED] = Effect("eff_old")
    with Provider("http://127.0.0.1:9", timeout_s=1) as provider, pytest.raises(Indeterminate) as left:
        acting(Service(), provider)(TESTED)
    assert left.value.effect_id == "eff_old"
    assert "refused" in left.value.cause, "why it is so"


# -- what a worker tells


class Taken(Service):
    """Somebody else holds the Run."""

    def claim(self, *_: Any, **__: Any) -> Claim:
        raise conflict("runtime.attempt_not_claimable")


def test_however_often_a_run_cannot_be_had_it_is_told_once(tmp_path: Path, plan: Plan) -> None:
    told: list[tuple[str, Any]] = []
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    with Provider("http://127.0.0.1:9") as provider:
        worker = Worker(
            Taken(), lambda _: plan, tmp_path / "w", provider, Options(patience_s=5), clock=clock, sleep=sleep,  # type: ignore[arg-type]
            notice=lambda what, of: told.append((what, of)),
        )  # fmt: skip
        left = worker.run(Target(made_up_id("sess"), RUN))
    assert (left.end, left.detail) == (End.NOTHING, "no Run could be had within 5 s")
    assert told == [("refused", {"asked": "claim", "code": "runtime.attempt_not_claimable", "missing": ()})]


def test_whoever_waits_for_an_approval_says_so_and_where_it_is_given(plan: Plan, progress: Progress) -> None:
    service, told = Service(), list[tuple[str, Any]]()
    held = held_of(service, progress)

    def granted(_: float) -> None:
        service.tell("approval.requested", approval_id="appr_1", action_digest=digest(plan, PUSHED))
        service.tell("approval.granted", approval_id="appr_1")

    step = plan.steps[PUSHED]
    assert isinstance(step, Act)
    with DemoProvider() as demo, Provider(demo.url) as provider:
        lease = Lease(held, 60_000, lambda: None)
        doing = Acting(held, progress, provider, lease, NoCrash(), sleep=granted, notice=lambda what, of: told.append((what, of)))
        assert doing.do(step) == "receipt"
    ((what, of),) = told
    assert (what, of["answer"]) == ("asks", f"/v1/sessions/{made_up_id('sess')}/approvals/appr_1/decide")
    assert of["action_digest"] == digest(plan, PUSHED)


def test_a_crash_point_is_a_phase_of_a_step_or_of_a_beginning() -> None:
    assert (DieAt.parse("12:sent").step, DieAt.parse("12:sent").phase) == (12, Phase.SENT)
    assert DieAt.parse("ready").step is None
    for bad in ("", "12:", "12:nowhere", "x:sent", "12"):
        with pytest.raises(Misconfigured):
            DieAt.parse(bad)
    DieAt.parse("12:sent").reached(Phase.SENT, 11)
    DieAt.parse("12:sent").reached(Phase.TOLD, 12)
