"""A call that never returns ends the process; one that returns in time does not."""

from tests.support.snippets import run_python

HANG = """
import time
from streams.log.watch import CallWatch
watch = CallWatch("test", 0.2)
with watch.over("sending offsets"):
    time.sleep({seconds})
print("came back")
"""


def test_a_call_that_never_returns_ends_the_process_with_its_status() -> None:
    ended = run_python(HANG.format(seconds=30))
    assert (ended.returncode, ended.stdout.count("came back")) == (5, 0)
    assert "sending offsets" in ended.stdout + ended.stderr


def test_a_call_that_returns_in_time_is_left_alone() -> None:
    ended = run_python(HANG.format(seconds=0.05))
    assert (ended.returncode, ended.stdout) == (0, "came back\n")
