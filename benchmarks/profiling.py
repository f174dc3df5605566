"""Where the time of one role goes, under the load of its own measurement: a flame graph by py-spy, and its top as text.

`python -m benchmarks.profiling authority` writes build/profile-authority.svg. Sampling stops the process for a moment each
time, so rates under it are no figures. Waiting is part of the authority's picture, which has one thread that matters; of
the others, with their many threads, only what runs is seen. py-spy attaches to a running process of the same user; `traceable`
lets it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import flames
from benchmarks.append import BATCH, SESSIONS
from benchmarks.bench import Bench, Options, opened
from benchmarks.deciding import Shape, prepared
from benchmarks.serving import Installation, content_chars_of, running
from benchmarks.steady import WARM

_TRACEABLE: Final = Path(__file__).parent / "traceable"
_RATE: Final = 200
_SECONDS: Final = 20.0
_TOP: Final = 30
_THREADS: Final = {"authority": "Loop.run"}
"""The thread that the text tells of where others only wait."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("what", choices=sorted(_SCENES), help="the role, under its own load")
    parser.add_argument("--native", action="store_true", help="with the frames of C extensions; slower")
    parser.add_argument("--events", type=int, default=Options().events, help="decided under the profiler (authority)")
    parser.add_argument("--folder", type=Path, default=Path("build"))
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_TRACEABLE), os.environ.get("PYTHONPATH")]))
    picture = asked.folder / f"profile-{asked.what}.svg"
    with opened(Options(events=asked.events, load_s=_SECONDS), _say) as bench:
        _SCENES[asked.what](bench, _Profiler(picture, native=asked.native))
    print(flames.told(picture.read_text(), _TOP, _THREADS.get(asked.what)))
    _say(f"written to {picture}")
    return 0


class _Profiler:
    """Attaches py-spy to a process for as long as the block lasts."""

    def __init__(self, picture: Path, *, native: bool) -> None:
        beside = Path(sys.executable).with_name("py-spy")
        self._program = str(beside) if beside.exists() else shutil.which("py-spy") or "py-spy"
        self._picture, self._native = picture, native

    @contextmanager
    def attached(self, pid: int, *, waits: bool = False) -> Iterator[None]:
        """`waits`: time in which nothing runs counts too; else only what holds the interpreter's lock.

        Raises RuntimeError with what py-spy says where it made no picture.
        """
        more = [*(["--native"] if self._native else []), "--idle" if waits else "--gil"]
        argv = [self._program, "record", "--pid", str(pid), "--rate", str(_RATE), "--function", "--output", str(self._picture), *more]
        self._picture.unlink(missing_ok=True)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
            try:
                yield
            finally:
                spy.send_signal(signal.SIGINT)
                _, said = spy.communicate(timeout=60)
        if not self._picture.exists():
            raise RuntimeError(f"py-spy made no picture:\n{said}")


def _authority(bench: Bench, profiler: _Profiler) -> None:
    """One event a command."""
    options = bench.options
    with prepared(bench, Shape(sessions=options.sessions, event_bytes=options.event_bytes)) as ground:
        before = ground.fill(1, options.events)
        with ground.authorities() as roles:
            _waited(ground.until(before + int(WARM * options.events), roles))
            with profiler.attached(roles[0].process.pid, waits=True):
                _waited(ground.until(before + options.events, roles))


def _waited(looks: Iterator[int]) -> None:
    for _ in looks:
        pass


def _served(role: str, load: Callable[[Installation, list[str], int], object]) -> Callable[[Bench, _Profiler], None]:
    def scene(bench: Bench, profiler: _Profiler) -> None:
        chars = content_chars_of(bench.options.event_bytes)
        with running(bench) as installation:
            sessions = installation.create_sessions(SESSIONS)
            with profiler.attached(installation.pids[role]):
                load(installation, sessions, chars)

    return scene


def _singles(installation: Installation, sessions: list[str], chars: int) -> object:
    return installation.run("append", 64, sessions, content_chars=chars)


def _batches(installation: Installation, sessions: list[str], chars: int) -> object:
    return installation.run("batch", 4, sessions, content_chars=chars, lines=BATCH)


_SCENES: Final[dict[str, Callable[[Bench, _Profiler], None]]] = {
    "authority": _authority,
    "gateway": _served("gateway", _singles),
    "gateway-batches": _served("gateway", _batches),
    "projector": _served("projector", _batches),
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
