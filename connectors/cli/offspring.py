"""Child processes that cannot outlive their parent, however the parent ends.

On Linux the kernel sends SIGKILL to the child when the thread that started it ends, so that nothing stays behind a
SIGKILLed test run or supervisor. Since it is the *thread* that counts, one thread that lives as long as the process
starts all of them. Elsewhere the child is an ordinary one, and only an orderly end of the parent ends it.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Runs in the child, in the place of a `preexec_fn`, which is unsafe beside threads. The process id stays the same
# through exec. A parent that is gone already can send no signal any more, hence the comparison.
_PREAMBLE: Final = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""

_Request = tuple[Sequence[str], Mapping[str, str] | None, Path, "queue.Queue[subprocess.Popen[bytes] | OSError]"]


class _Starter:
    """The thread that starts every child."""

    def __init__(self) -> None:
        self._requests: queue.Queue[_Request] = queue.Queue()
        threading.Thread(target=self._run, name="offspring", daemon=True).start()

    def start(self, argv: Sequence[str], environment: Mapping[str, str] | None, output: Path) -> "subprocess.Popen[bytes]":
        answer: queue.Queue[subprocess.Popen[bytes] | OSError] = queue.Queue()
        self._requests.put((argv, environment, output, answer))
        child = answer.get()
        if isinstance(child, OSError):
            raise child
        return child

    def _run(self) -> None:
        while True:
            argv, environment, output, answer = self._requests.get()
            try:
                answer.put(_start_here(argv, environment, output))
            except OSError as error:
                answer.put(error)


def _start_here(argv: Sequence[str], environment: Mapping[str, str] | None, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PREAMBLE, str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            # A session of its own: Ctrl-C in a terminal reaches the parent alone, which stops its children in order.
            start_new_session=True,
        )


_lock = threading.Lock()
_starter: _Starter | None = None


def _forget_starter() -> None:
    global _lock, _starter
    _lock, _starter = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_starter)


def start_child(argv: Sequence[str], *, output: Path, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Starts `argv` (its first item an absolute path or found on PATH); what it prints is appended to `output`.

    Raises `OSError` where no process can be made. A command that cannot be executed ends at once, its reason in `output`.
    """
    global _starter
    with _lock:
        if _starter is None:
            _starter = _Starter()
    return _starter.start(argv, environment, output)
