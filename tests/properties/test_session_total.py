"""Whatever a command of the right types says, it is decided: the same way each time, whole or not at all, without a crash."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from streams.session.commands import Command, Kind, Report
from streams.session.decide import Decision, decide
from streams.session.events import (
    FAMILIES,
    TYPES,
    ApprovalAttributes,
    Attributes,
    Content,
    Draft,
    EffectAttributes,
    KeyReference,
    Link,
    WaitAttributes,
)
from streams.session.ids import derive_event_id
from streams.session.items import DictItems, SessionState
from streams.session.outcomes import Rejected
from tests.support.examples import made_up_id
from tests.support.recovering import ENVIRONMENT, HARNESS, erase, fork, leave_checkpoint, native
from tests.support.story import NOON, OTHER, PERSON, SECOND, SESSION, SUBJECT, WORKER, WORKSPACE, Story, part, sealed

DIGESTS = ["sha256:" + digit * 64 for digit in "12"]


def eventful() -> Story:
    """A session in which every kind of thing stands in more than one status."""
    story = Story()
    grant = story.working()
    run_id, wait, asked = grant.run_id, made_up_id("wait"), ApprovalAttributes(approval_id=made_up_id("appr"), action_digest=DIGESTS[0])
    effect = EffectAttributes(effect_id=made_up_id("eff"), provider="mail", request_digest=DIGESTS[0], approval_id=made_up_id("appr"))
    story.tell(part("thread.opened", thread_id=made_up_id("sthr")), part("turn.started", turn_id=made_up_id("turn")))
    story.tell(part("approval.requested", asked, run_id=run_id), by=WORKER, report=story.report(grant))
    story.tell(part("approval.granted", asked))
    story.tell(
        part("attempt.ready", run_id=run_id),
        part("effect.dispatched", effect, run_id=run_id),
        part("wait.opened", WaitAttributes(wait_id=wait, kind="human", expires_at=NOON + 5), run_id=run_id),
        by=WORKER,
        report=story.report(grant),
    )
    story.with_imported_run(made_up_id("run", "imported")).with_run(made_up_id("run", "offered"))
    story.tell(part("run.completed", run_id=made_up_id("run", "imported")), importing=True)
    leave_checkpoint(story, story.claim(), **native())
    return story


def dead() -> Story:
    """The same, later: its worker, which was ready, is gone; what it said is erased, what it left is not."""
    story = eventful()
    story.tell(part("message.appended", content=sealed()), part("message.appended", content=Content("omitted")))
    erase(story)
    leave_checkpoint(story, story.claim(), "later", **native())
    story.now += 31 * SECOND
    return story


STORY = eventful()
CLOSED = Story().created()
CLOSED.tell(part("session.closed"))
DEAD = dead()
CHILD = fork(STORY, checkpoint_id=made_up_id("ckpt"))
"""Its items lie under the session id of the commands below: what is decided asks for the header's workspace alone."""
STATES = [DictItems(), CLOSED.items, STORY.items, DEAD.items, CHILD.items]

text = st.text(max_size=8)
numbers = st.one_of(
    st.integers(), st.integers(-2, 20), st.sampled_from([NOON - 1, NOON, NOON + 5, NOON + 10**9, 2**63 - 1, -(2**63), 10**30])
)


def ids(prefix: str, *labels: str) -> st.SearchStrategy[str]:
    return st.sampled_from([made_up_id(prefix, label) for label in ("", *labels)])


def either(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(strategy, strategy, strategy, text)


WORDS: dict[str, st.SearchStrategy[str]] = {
    "origin": st.sampled_from(["live", "imported"]),
    "policy_mode": st.sampled_from(["standard", "zdr"]),
    "kind": st.sampled_from(["main", "child", "human", "machine", "timer"]),
    "evidence_kind": st.sampled_from(["provider_lookup", "governed_decision", "accepted_receipt"]),
    "outcome": st.sampled_from(["succeeded", "failed", "not_performed", "abandoned"]),
    "action_digest": st.sampled_from(DIGESTS),
    "request_digest": st.sampled_from(DIGESTS),
    "effect_id": ids("eff", "new"),
    "wait_id": ids("wait", "new"),
    "approval_id": ids("appr", "new"),
    "child_id": ids("chld", "new"),
    "target_run_id": ids("run", "imported", "offered"),
    "parent_thread_id": ids("sthr"),
    "checkpoint_id": ids("ckpt", "new", "later"),
    "continuation_kind": st.sampled_from(["native", "event_log_rebuild"]),
    "snapshot_kind": st.sampled_from(["stored", "referenced", "none"]),
    "snapshot_id": ids("snap"),
    "native_id": ids("snap"),
    "snapshot_digest": st.sampled_from(DIGESTS),
    "native_digest": st.sampled_from(DIGESTS),
    "verification_digest": st.sampled_from(DIGESTS),
    "fork_id": ids("fork"),
    "source_session_id": ids("sess", "source"),
    "origin_session_id": ids("sess", "source"),
    "child_session_id": ids("sess", "child"),
    "through_event_id": st.sampled_from([event.event_id for event in STORY.events]),
    "source_hash": st.sampled_from([event.hash.hex() for event in STORY.events]),
    "through_hash": st.sampled_from([event.hash.hex() for event in STORY.events]),
    "harness_revision": st.sampled_from([HARNESS, "harness@8"]),
    "environment_revision": st.sampled_from([ENVIRONMENT, "image@3"]),
    "inherited": st.sampled_from(["", f"{SESSION}=2026-02-31:1-3,omitted:2-2", f"{SESSION}=erased:1-3;{SESSION}=0000-99-99:1-999"]),
}


@st.composite
def attributes(draw: st.DrawFn, kind: type[Attributes]) -> Attributes:
    values: dict[str, object] = {}
    for field in structs.fields(kind):
        strategies: dict[object, st.SearchStrategy[object]] = {
            str | None: either(WORDS.get(field.name, text)),
            int | None: numbers,
            bool | None: st.booleans(),
            float | None: st.floats(),
        }
        values[field.name] = draw(st.one_of(st.none(), strategies[field.type]))
    return kind(**values)


contents = st.one_of(
    st.just(Content()),
    st.just(sealed()),
    st.builds(
        Content,
        st.one_of(st.sampled_from(["sealed", "none", "omitted"]), text),
        st.one_of(st.none(), st.builds(KeyReference, st.one_of(st.none(), st.just(SUBJECT), text), either(st.just(SESSION)), text)),
        st.one_of(st.none(), st.binary(max_size=64)),
        st.one_of(st.none(), st.binary(max_size=32)),
    ),
)


@st.composite
def drafts(draw: st.DrawFn, command_id: str, index: int, event_type: str | None = None) -> Draft:
    event_type = event_type or draw(st.one_of(st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(TYPES)), text))
    family = FAMILIES.get(event_type.partition(".")[0], draw(st.sampled_from(list(FAMILIES.values()))))

    def maybe(strategy: st.SearchStrategy[object]) -> object:
        return draw(st.one_of(st.none(), strategy))

    return Draft(
        event_id=derive_event_id(command_id, index) if draw(st.integers(0, 9)) else draw(text),
        session_id=SESSION if draw(st.integers(0, 9)) else draw(text),
        type=event_type,
        workspace_id=WORKSPACE if draw(st.integers(0, 9)) else draw(text),
        thread_id=maybe(either(ids("sthr", "new"))),
        turn_id=maybe(either(ids("turn", "new"))),
        run_id=maybe(either(ids("run", "imported", "offered", "new"))),
        attempt_generation=maybe(numbers),
        native_task_id=maybe(either(ids("task"))),
        actor_id=maybe(either(ids("actr"))),
        subject_id=maybe(either(st.just(SUBJECT))),
        command_id=command_id,
        occurred_at=maybe(numbers),
        links=tuple(draw(st.lists(st.builds(Link, text, either(ids("evt"))), max_size=2))),
        attributes=maybe(attributes(family)),
        content=draw(contents),
    )  # type: ignore[arg-type]


@st.composite
def commands(draw: st.DrawFn) -> Command:
    command_id = made_up_id("cmd", draw(st.integers(1000, 1003)))
    attempt = STORY.attempt()
    report = st.one_of(
        st.just(Report(attempt.run_id, attempt.generation, attempt.native_task_id, STORY.run().sequence)),
        st.builds(
            Report,
            either(ids("run", "imported", "offered")),
            numbers,
            st.one_of(st.none(), either(st.just(attempt.native_task_id))),
            st.one_of(st.none(), numbers),
        ),
    )
    kind = draw(st.sampled_from(Kind))
    types = draw(st.one_of(st.none(), st.just(TYPES_OF.get(kind))))
    if types is None:
        parts = [draw(drafts(command_id, index)) for index in range(draw(st.integers(0, 3)))]
    else:
        parts = [draw(drafts(command_id, index, event_type)) for index, event_type in enumerate(types)]
    return Command(
        command_id=command_id if draw(st.integers(0, 9)) else draw(text),
        session_id=SESSION if draw(st.integers(0, 9)) else draw(text),
        workspace_id=WORKSPACE if draw(st.integers(0, 9)) else draw(text),
        kind=kind,
        principal_id=draw(either(st.sampled_from([WORKER, OTHER, PERSON]))),
        request_digest=bytes(32),
        issued_at=draw(numbers),
        not_after=draw(st.one_of(st.just(2**63 - 1), numbers)),
        expected_sequence=draw(st.one_of(st.none(), st.none(), numbers)),
        report=draw(st.one_of(st.none(), report)),
        lease_ms=draw(st.one_of(st.none(), numbers)),
        importing=draw(st.booleans()),
        drafts=tuple(parts),
    )


TYPES_OF = {
    Kind.CLAIM: ["attempt.started"],
    Kind.REPLACE: ["attempt.started"],
    Kind.FORK: ["session.forked"],
    Kind.CHILD: ["session.created", "checkpoint.created"],
    Kind.RENEW: [],
    Kind.LAPSE: [],
    Kind.ERASE: [],
    Kind.DISINHERIT: [],
}
"""What a kind is made of, so that its own rules are reached."""
UNUSABLE = Command(
    command_id="\ud800", session_id="", workspace_id="", kind=Kind.APPEND, principal_id="", request_digest=b"", issued_at=0, not_after=2**70
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(command=commands(), now=st.one_of(st.just(NOON + 1), numbers), state=st.sampled_from(STATES), offset=numbers, took_over_at=numbers)
@example(command=UNUSABLE, now=0, state=STATES[0], offset=0, took_over_at=0)
def test_every_command_is_decided(command: Command, now: int, state: DictItems, offset: int, took_over_at: int) -> None:
    before = dict(state.items)
    decision = decide(state, command, now, offset, took_over_at)
    assert state.items == before
    assert decide(DictItems(before), command, now, offset, took_over_at) == decision
    if isinstance(decision, Rejected):
        assert decision.code.partition(".")[0] in {"request", "resource", "runtime"}
        return
    header = state.get("session", "")
    known = header if isinstance(header, SessionState) else None
    assert now <= command.not_after
    assert decision.accepted_at >= (now if known is None else known.last_accepted_at)
    assert decision.first_sequence == (0 if not decision.drafts else 1 if known is None else known.sequence + 1)
    assert len({draft.event_id for draft in decision.drafts}) == len(decision.drafts)


@settings(max_examples=150, deadline=None)
@given(
    command=commands(),
    now=st.one_of(st.just(NOON + 1), st.integers(NOON, NOON + 10**8)),
    told=st.sampled_from([STORY, STORY, DEAD, Story()]),
)
def test_what_is_accepted_folds_to_what_was_decided(command: Command, now: int, told: Story) -> None:
    """`Story` compares the decision with the fold of its events."""
    story = Story(now)
    story.items, story.folded, story.commands = DictItems(told.items.items), DictItems(told.folded.items), told.commands
    decision = story.decide(command)
    if isinstance(decision, Decision) and decision.drafts:
        assert story.header.sequence == len(told.events) + len(decision.drafts)
