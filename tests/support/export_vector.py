"""The history behind `tests/vectors/export.ndjson`; run it to write that file anew after a change of the format."""

from pathlib import Path

from streams.session.events import RunAttributes, SessionAttributes, ToolAttributes
from tests.support.examples import made_up_id
from tests.support.exports import conversation

FILE = Path(__file__).parent.parent / "vectors" / "export.ndjson"


def vector() -> list[bytes]:
    """Every kind of position: opened, without content, and content that is gone for each reason."""
    history = conversation(2)
    history.tell("session.closed", SessionAttributes(reason="done"), text='{"why":"été \\u00e9"}')
    history.tell("run.completed", RunAttributes(reward=0.1, claimable=False), run_id=made_up_id("run"))
    history.tell("tool.returned", ToolAttributes(name="a_tool", is_error=True, duration_ms=2**40))
    history.tell(text='"expired"', gone="expired").tell(text='"erased"', gone="erased").tell(text="{}", gone="unreadable")
    return history.tell(gone="omitted").tell().lines()


if __name__ == "__main__":
    FILE.write_bytes(b"".join(vector()))
