"""The supervisor: what dies is started again, and said; what never comes up is given up on; nothing is left behind."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.cli.supervise import Program, Supervisor
from streams.errors import Fatal


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervise(tmp_path: Path, said: list[str]) -> Iterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def make(**scripts: str) -> Supervisor:
        programs = [
            Program(
                name=name,
                argv=[sys.executable, "-c", script],
                environment=dict(os.environ),
                log=tmp_path / f"{name}.log",
                output=tmp_path / f"{name}.out",
            )
            for name, script in scripts.items()
        ]
        made.append(Supervisor(programs, said.append))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.kill()


def watch_until(supervisor: Supervisor, happened: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline
        supervisor.watch()
        time.sleep(0.02)


def test_a_program_that_is_killed_is_started_again_and_said(supervise: Callable[..., Supervisor], said: list[str]) -> None:
    supervisor = supervise(steady="import time; time.sleep(600)")
    supervisor.start()
    supervisor.ready = True
    first = supervisor.pids()["steady"]
    os.kill(first, signal.SIGKILL)
    watch_until(supervisor, lambda: supervisor.pids().get("steady", first) != first)
    assert len(said) == 1
    assert "steady was ended by SIGKILL; starting it again in 0.5 s" in said[0]


def test_the_pause_doubles_while_a_program_keeps_dying(supervise: Callable[..., Supervisor], said: list[str]) -> None:
    supervisor = supervise(dying="raise SystemExit(7)")
    supervisor.start()
    supervisor.ready = True
    watch_until(supervisor, lambda: len(said) == 3)
    assert [line.split(" (log")[0] for line in said] == [
        f"dying ended with status 7; starting it again in {pause} s" for pause in ("0.5", "1", "2")
    ]


def test_one_that_never_comes_up_is_given_up_on_in_its_own_words(supervise: Callable[..., Supervisor]) -> None:
    supervisor = supervise(broken="raise SystemExit('no such setting')")
    supervisor.start()
    with pytest.raises(Fatal, match="broken ended with status 1 3 times while starting; its last lines:\nno such setting"):
        watch_until(supervisor, lambda: False)


def test_stopping_goes_backwards_and_kills_what_does_not_listen(
    supervise: Callable[..., Supervisor], said: list[str], tmp_path: Path
) -> None:
    note = f"open({str(tmp_path / 'order')!r}, 'a').write"
    stays = "print('up', flush=True)\ntime.sleep(600)"
    polite = f"import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: ({note}('NAME '), exit()))\n{stays}"
    deaf = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{stays}"
    supervisor = supervise(first=polite.replace("NAME", "first"), deaf=deaf, last=polite.replace("NAME", "last"))
    supervisor.start()
    outputs = [tmp_path / f"{name}.out" for name in ("first", "deaf", "last")]
    watch_until(supervisor, lambda: all("up" in output.read_text() for output in outputs))
    supervisor.stop(timeout_s=0.5)
    assert (tmp_path / "order").read_text() == "last first "
    assert said == ["deaf did not stop within 0.5 s and is killed"]
    assert supervisor.pids() == {}


def test_a_command_that_cannot_be_executed_leaves_its_reason(tmp_path: Path) -> None:
    program = Program(name="none", argv=["/no/such/program"], environment={}, log=tmp_path / "log", output=tmp_path / "out")
    supervisor = Supervisor([program], lambda _: None)
    supervisor.start()
    with pytest.raises(Fatal, match="No such file"):
        watch_until(supervisor, lambda: False)
