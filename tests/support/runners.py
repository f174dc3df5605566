"""Runners as processes that are killed one after the other on one Run, and what is to be true of it afterwards."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from connectors.cli.offspring import start_child
from connectors.runner.acting import Provider
from connectors.runner.crash import Phase
from connectors.runner.desk import Desk
from connectors.runner.plan import Act, Plan, Say, make_plan, points, read_records
from connectors.runner.provider import DemoProvider
from connectors.runner.starting import open_run
from connectors.runner.worker import EXACT, End, Left, Options, Target, Worker
from connectors.runner.workspace import MARKER
from connectors.support.capabilities import REPLACEMENT
from connectors.support.catalogue import STATEMENTS, TRUSTED
from connectors.support.journeys import record
from connectors.support.statement import Evidence, ExactTuple
from connectors.support.support import running_release
from connectors.support.trust import change_trust
from session_streams import Client
from streams.custody.signing import SigningKey
from streams.settings import Settings
from tests.support.processes import environment
from tests.support.renaming import Renaming
from tests.support.roles import Roles

LEASE_MS = 1500
SCOPES = ("sessions:read", "sessions:write", "runs:claim", "checkpoints:read", "checkpoints:write")
SLOW_MAX = 5
"""Times that a worker may lose its lease to a busy machine: to its Run that is one more death."""
FENCED = 6
RUNNER = ExactTuple(
    release=running_release(), driver=EXACT.driver, sandbox_provider_revision=EXACT.sandbox_provider_revision, policy=EXACT.policy,
    execution_target=EXACT.execution_target, harness_revision=EXACT.harness_revision, environment_revision=EXACT.environment_revision,
)  # fmt: skip
"""What the runner runs on, as the support catalogue has it."""
BEFORE_STEPS = (Phase.CLAIMED, Phase.RESTORED, Phase.UPLOADED, Phase.CHECKPOINTED, Phase.READY)
CONVERSATION = ("message.appended", "tool.called", "tool.returned")


def trust_replacement(settings: Settings, folder: Path) -> Callable[[], object]:
    """A statement that this very tuple has replaced an attempt that was ready, under a key that is trusted here, until what is
    returned is called."""
    key_file, trusted = folder / "trusted.pem", settings.support_path / TRUSTED
    key = SigningKey.at(key_file)
    evidence = Evidence(test="tests/support/runners.py::trust_replacement")
    record(settings.support_path / STATEMENTS, key, REPLACEMENT, RUNNER, "passed", evidence)
    change_trust(trusted, key_file=key_file)
    return lambda: change_trust(trusted, remove=key.public.key_id)


@dataclass(frozen=True)
class Kill:
    """Where a runner dies; without a step, in its beginning."""

    phase: Phase
    step: int | None = None

    def __str__(self) -> str:
        return f"{self.phase}" if self.step is None else f"{self.step}:{self.phase}"


PASSED = frozenset({Phase.WRITTEN, Phase.ANSWERED})
"""Places that the next worker does not come to where one died in the same step before: it finds the step over."""


def kills_of(plan: Plan) -> list[Kill]:
    """Every boundary of every step and what lies between, in order."""
    return [Kill(phase, step.index) for step in plan.steps for phase in points(step)]


def reachable(kills: Iterable[Kill]) -> list[Kill]:
    """Those that a chain comes to."""
    found: list[Kill] = []
    for kill in kills:
        if not (kill.phase in PASSED and found and any(each.step == kill.step for each in found)):
            found.append(kill)
    return found


class RunnerProcess:
    """One `session-streams runner` at one Run. What it tells is kept in a file."""

    def __init__(
        self, transcript: Path, folder: Path, *, url: str, api_key: str, provider: str, where: Iterable[str], steps_max: int,
        lease_ms: int, die_at: Kill | None = None, arguments: Iterable[str] = (),
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self.workspace, self.output = folder / "workspace", folder / "told.jsonl"
        self.output.unlink(missing_ok=True)
        argv = [
            sys.executable, "-m", "connectors.cli", "runner", str(transcript), "--workspace", str(self.workspace), "--provider", provider,
            *where, "--steps", str(steps_max), "--lease-ms", str(lease_ms),
            "--patience-s", "60", "--json", *([] if die_at is None else ["--die-at", str(die_at)]), *arguments,
        ]  # fmt: skip
        path = environment(Settings())["PYTHONPATH"]
        given = {**os.environ, "PYTHONPATH": path, "SESSION_STREAMS_URL": url, "SESSION_STREAMS_API_KEY": api_key}
        self.process: subprocess.Popen[bytes] = start_child(argv, output=self.output, environment=given)

    def wait(self, timeout_s: float = 90) -> int:
        return self.process.wait(timeout_s)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def told(self, what: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if what in (None, line["told"])]

    def text(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Counts:
    """Of a chain of kills, or of several."""

    kills: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    actions: int = 0
    slow: int = 0

    def __str__(self) -> str:
        def listed(counter: Counter[str]) -> str:
            return ", ".join(f"{count} {name}" for name, count in sorted(counter.items())) or "none"

        parts = (
            f"{self.kills} kills, {self.slow} leases lost to a busy machine", f"claims: {listed(self.modes)}",
            f"{self.replaced} replacements of ready attempts", f"files from: {listed(self.files)}",
            f"{self.actions} actions, settled by: {listed(self.settled)}", f"refused: {listed(self.refused)}",
        )  # fmt: skip
        return "; ".join(parts)

    def add(self, other: "Counts") -> None:
        self.kills += other.kills
        self.replaced += other.replaced
        self.actions += other.actions
        self.slow += other.slow
        for name in ("modes", "files", "settled", "refused"):
            getattr(self, name).update(getattr(other, name))


class Stage:
    """One transcript, cut, on one installation, with a provider and somebody who answers."""

    def __init__(self, roles: Roles, transcript: Path, steps_max: int, folder: Path, *, lease_ms: int = LEASE_MS) -> None:
        self.roles, self.transcript, self.steps_max, self.folder, self.lease_ms = roles, transcript, steps_max, folder, lease_ms
        self.records = read_records(transcript)
        self.keys = [roles.key(*SCOPES), roles.key(*SCOPES)]
        """Of two runners: two principals, who may do what a worker does and nothing else."""

    def plan_for(self, run_id: str) -> Plan:
        return make_plan(self.records, run_id, self.steps_max)

    @contextmanager
    def open(self, *, decision: str = "granted", answers: bool = True) -> Iterator["Scene"]:
        """`decision` is that about every action; without `answers` nobody sits at the desk until `Scene.answer`."""
        with Client(self.roles.url, self.keys[0]) as client, DemoProvider() as provider, ExitStack() as stack:
            lane = f"lane-{uuid.uuid4().hex}"
            target = open_run(client, self.plan_for, lane=lane)
            scene = Scene(self, client, provider, target, lane)
            stack.callback(scene.end)
            desk = Desk(client, target.session_id, decision=lambda _: decision)
            scene.answer = lambda: stack.enter_context(desk)
            if answers:
                scene.answer()
            yield scene


class Scene:
    """One Run on a stage."""

    def __init__(self, stage: Stage, client: Client, provider: DemoProvider, target: Target, lane: str) -> None:
        self.stage, self.client, self.provider, self.target, self.lane = stage, client, provider, target, lane
        self.plan = stage.plan_for(target.run_id)
        self.counts = Counts()
        self.processes: list[RunnerProcess] = []
        self.answer: Callable[[], object]

    def here(self, *, options: Options | None = None, path: str = "undisturbed") -> Left:
        """One worker in this process, from beginning to end."""
        with Provider(self.provider.url) as provider:
            workspace = self.stage.folder / path
            return Worker(self.client, self.stage.plan_for, workspace, provider, options or Options()).run(self.target)

    def start(
        self, number: int, die_at: Kill | None = None, arguments: Iterable[str] = (), *, by_lane: bool = False
    ) -> RunnerProcess:  # fmt: skip
        stage, target = self.stage, self.target
        where = ["--lane", self.lane] if by_lane else ["--session", target.session_id, "--run", target.run_id]
        process = RunnerProcess(
            stage.transcript, stage.folder / f"runner-{number % 2}", url=stage.roles.url, api_key=stage.keys[number % 2],
            provider=self.provider.url, where=where, steps_max=stage.steps_max, lease_ms=stage.lease_ms, die_at=die_at,
            arguments=arguments,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.end()

    def chain(self, kills: Sequence[Kill], arguments: Iterable[str] = ()) -> RunnerProcess:
        """Two runners in turn: each dies at the next place, the last one comes to the end. What lies on the disk is checked at each."""
        arguments, turns = tuple(arguments), count()
        for kill in kills:
            process = self._ended(turns, kill, arguments)
            assert process.process.returncode == -signal.SIGKILL, f"at {kill}: {process.text()}"
            self.counts.kills += 1
            self._check_disk(process, kill)
        last = self._ended(turns, None, arguments)
        assert last.process.returncode == 0, last.text()
        (left,) = last.told("left")
        assert left["end"] == End.COMPLETED
        return last

    def _ended(self, turns: Iterator[int], kill: Kill | None, arguments: tuple[str, ...]) -> RunnerProcess:
        """The next runner that did not just lose its lease."""
        for _ in range(SLOW_MAX + 1):
            process = self.start(next(turns), kill, arguments)
            process.wait()
            self._note(process)
            if process.process.returncode != FENCED:
                return process
            self.counts.slow += 1
        raise AssertionError(f"too slow to hold a lease of {self.stage.lease_ms} ms: {process.text()}")

    def _note(self, process: RunnerProcess) -> None:
        for told in process.told("claimed"):
            self.counts.modes[told["mode"] if told["reason"] is None else f"{told['mode']} ({told['reason']})"] += 1
        for told in process.told("begun"):
            self.counts.files[told["files"]] += 1
            assert told["unusable"] == ""
            assert (told["files"] == "checkpoint") == (told["mode"] == "checkpoint_restore"), told
        for told in process.told("refused"):
            self.counts.refused[told["code"]] += 1

    def _check_disk(self, process: RunnerProcess, kill: Kill) -> None:
        """What a killed runner left is what the steps up to there write, and nothing of what came after."""
        if kill.phase is Phase.CLAIMED:
            return
        (begun,) = process.told("begun")
        steps = begun["steps"] if kill.step is None else kill.step + (kill.phase is Phase.WRITTEN)
        assert files_below(process.workspace) == files_after(self.plan, steps), f"at {kill}"

    # -- what is to be true afterwards

    def events(self) -> list[dict[str, Any]]:
        return [dict(event.raw) for event in self.client.events(self.target.session_id)]

    def conversation(self) -> list[Any]:
        """What was said, whoever said it: structure with ids renamed, and content."""
        renaming, said = Renaming(), [event for event in self.events() if event["type"] in CONVERSATION]
        return [(event["type"], renaming.of(event.get("attributes")), event.get("content")) for event in said]

    def judge(self, undisturbed: "Scene", last: RunnerProcess) -> None:
        events = self.events()
        check_log(events)
        assert self.conversation() == undisturbed.conversation()
        assert files_below(last.workspace) == files_after(self.plan, len(self.plan.steps))
        acts = [step for step in self.plan.steps if isinstance(step, Act)]
        assert self.provider.performed == Counter(step.digest for step in acts)
        settled = settlements(events)
        assert sum(settled.values()) == len(acts), "an action is settled by nothing, or twice"
        self.counts.settled.update(settled)
        self.counts.actions += len(acts)
        self.counts.replaced += sum(event["type"] == "attempt.replaced" for event in events)


def settlements(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """Effects by what settled them."""
    found: Counter[str] = Counter()
    for event in events:
        if event["type"] == "effect.receipt_accepted":
            found["receipt"] += 1
        elif event["type"] == "effect.reconciled":
            found[event["attributes"]["evidence_kind"]] += 1
    return found


def check_log(events: Sequence[dict[str, Any]]) -> None:
    """No gap; generations rise one by one; never two that live; what a worker reports is of the one that lives."""
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    generation, live = 0, False
    for event in events:
        match event["type"]:
            case "attempt.started":
                assert not live, f"{event['sequence']}: two generations live"
                assert event["attempt_generation"] == generation + 1
                generation, live = generation + 1, True
            case "attempt.failed" | "attempt.replaced" | "attempt.fenced":
                assert event["attempt_generation"] == generation
                live = False
            case "message.appended" | "tool.called" | "tool.returned" | "checkpoint.created" | "effect.dispatched" | "run.completed":
                if event.get("run_id") is not None:
                    assert live, f"{event['sequence']}: {event['type']} of nobody"
                    assert event.get("attempt_generation") in (None, generation)


def files_after(plan: Plan, steps: int) -> dict[str, bytes]:
    """What lies in the workspace once so many steps are over, computed without a disk."""
    found: dict[str, str] = {}
    for step in plan.steps[:steps]:
        for write in step.writes if isinstance(step, Say) else ():
            below = f"{write.path}/"
            for path in [path for path in found if path.startswith(below) or write.path.startswith(f"{path}/")]:
                del found[path]
            found[write.path] = write.applied_to(found.get(write.path))
    return {path: text.encode(errors="surrogateescape") for path, text in found.items()}


def files_below(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MARKER]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
