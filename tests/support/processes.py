"""Roles as processes of their own, so that a test can kill, stop and continue them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from connectors.cli.offspring import start_child
from streams.settings import Settings


class RoleProcess:
    """One role of the command line, with a given instance name. What it logs is kept under the data folder."""

    def __init__(self, settings: Settings, role: str, instance: str = "0", *arguments: str) -> None:
        self.settings = replace(settings, instance=instance)
        self.output = settings.data_dir / f"{role}-{instance}.log"
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self._argv = [sys.executable, "-m", "connectors.cli", role, *arguments]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return start_child(self._argv, output=self.output, environment={**os.environ, **environment(self.settings)})

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].startswith("T")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self, timeout_s: float = 60) -> int:
        return self.process.wait(timeout_s)

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def proceed(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Asks it to end, as a supervisor does; returns its exit status."""
        if self.alive:
            self.proceed()
            self.process.terminate()
        return self.process.wait(30)

    def restart(self, *arguments: str) -> None:
        self._argv = [*self._argv[:4], *arguments]
        self.process = self._start()

    def again(self) -> None:
        """Starts one that ended, as it was started before."""
        self.process = self._start()

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def environment(settings: Settings) -> dict[str, str]:
    """The settings as the command line reads them."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, **settings.environment()}


class Fleet:
    """Starts roles; whatever happens, nothing of it is left running."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.roles: list[RoleProcess] = []

    def start(self, role: str, instance: str = "0", *arguments: str) -> RoleProcess:
        process = RoleProcess(self._settings, role, instance, *arguments)
        self.roles.append(process)
        return process

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for role in self.roles:
            if role.alive:
                role.kill()


def eventually(condition: Callable[[], bool], *, within_s: float = 60, why: str = "") -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, why or "it did not come to pass"
        time.sleep(0.05)
