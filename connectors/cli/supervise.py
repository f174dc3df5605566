"""Keeps the processes of one machine running: starts them, starts again what dies, stops them in order.

A role that dies is started again after a pause that doubles up to a bound and shrinks back once it has stayed up. One
that keeps dying before the first sign of readiness is given up on, with its own last lines. Every change is told in
one line, so that nobody has to look into a log to see that something restarts.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from connectors.cli.offspring import start_child
from streams.errors import Fatal

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_STAYED_UP_S: Final = 30.0
_TRIES_BEFORE_READY: Final = 3
_STOP_TIMEOUT_S: Final = 10.0
_TAIL_LINES: Final = 20
_OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of what comes out of a program beside its log; it begins anew at a start beyond that."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One process to keep running. `log` is what it writes itself, `output` what else comes out of it."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    output: Path


@dataclass
class _Running:
    program: Program
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    due_s: float | None = None
    deaths: int = field(default=0)


class Supervisor:
    """Not thread-safe: one caller starts, watches in a loop, and stops."""

    def __init__(self, programs: Sequence[Program], say: Callable[[str], None]) -> None:
        """`programs` in the order of starting; they stop in the opposite order. `say` takes one line for a person."""
        self._running = [_Running(program) for program in programs]
        self._say = say
        self.ready = False
        """Set by the caller once everything has answered: from then on a role is started again without end."""

    def pids(self) -> dict[str, int]:
        return {each.program.name: each.process.pid for each in self._running if each.process is not None}

    def start(self) -> None:
        for each in self._running:
            self._start(each)

    def watch(self) -> None:
        """One look: notices who died, starts again who is due. Raises `Fatal` for one that never comes up."""
        now = time.monotonic()
        for each in self._running:
            if each.process is not None and each.process.poll() is not None:
                self._died(each, now)
            elif each.process is None and each.due_s is not None and now >= each.due_s:
                self._start(each)

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """SIGTERM one after the other, each bounded, then SIGKILL."""
        for each in reversed(self._running):
            if each.process is None:
                continue
            each.process.terminate()
            try:
                each.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._say(f"{each.program.name} did not stop within {timeout_s:g} s and is killed")
                each.process.kill()
                each.process.wait()
            each.process = None

    def kill(self) -> None:
        for each in self._running:
            if each.process is not None:
                each.process.kill()
        for each in self._running:
            if each.process is not None:
                each.process.wait()
                each.process = None

    def _start(self, each: _Running) -> None:
        program = each.program
        program.output.parent.mkdir(parents=True, exist_ok=True)
        if program.output.exists() and program.output.stat().st_size > _OUTPUT_BYTES_MAX:
            program.output.write_bytes(b"")
        each.process = start_child(program.argv, output=program.output, environment=program.environment)
        each.started_s, each.due_s = time.monotonic(), None

    def _died(self, each: _Running, now: float) -> None:
        assert each.process is not None
        how = _ending(each.process.returncode)
        each.process = None
        each.deaths += 1
        if not self.ready and each.deaths >= _TRIES_BEFORE_READY:
            raise Fatal(f"{each.program.name} {how} {each.deaths} times while starting; its last lines:\n{last_lines(each.program)}")
        if now - each.started_s >= _STAYED_UP_S:
            each.pause_s = _FIRST_PAUSE_S
        each.due_s = now + each.pause_s
        self._say(f"{each.program.name} {how}; starting it again in {each.pause_s:g} s (log: {each.program.log})")
        each.pause_s = min(2 * each.pause_s, _LONGEST_PAUSE_S)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def last_lines(program: Program) -> str:
    lines: list[str] = []
    for path in (program.log, program.output):
        if path.exists():
            lines += path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(lines) or "(it wrote nothing)"
