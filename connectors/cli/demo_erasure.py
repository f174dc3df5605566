"""The demonstration of an erasure: a customer of the sample trajectories is erased, wherever the customer was.

1 what one of the sessions holds of the customer      3 the same reads show gaps with their reason, and the chain still verifies
2 the customer is erased, by the shop's own id        4 three signed receipts, checked with nothing but their file and the public keys
"""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final

from connectors.cli import erasing
from connectors.cli.reading import event_line
from session_streams import Client, NotFound, Session
from session_streams.export import verify
from session_streams.receipts import verify as verify_receipts
from streams.settings import Settings

CUSTOMER: Final = "ada_quill_1042"
"""Of the sample trajectories: what their shop calls her."""
QUICK: Final[dict[str, Any]] = {
    "compacted_segment_s": 1.0, "compaction_lag_s": 1.0, "compaction_margin_s": 5.0, "file_delete_delay_s": 0.5,
}  # fmt: skip
"""Settings by which what stands in compacted topics goes within seconds; a day is what an installation gives it."""
QUICK_KAFKA: Final = {
    "log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "500", "log.initial.task.delay.ms": "500",
}  # fmt: skip
_RECEIPTS: Final = Path("build") / "demo-erasure.receipts"
_TRUST: Final = Path("build") / "demo-trust.json"
_TRUSTED: Final = "trust.json"
_PATIENCE_S: Final = 120.0
_EVENTS: Final = 4


def show_erasure(client: Client, settings: Settings, say: Callable[[str], None]) -> str | None:
    """The id of a session that concerned the customer; None where not everything came out as it should. Raises what the client raises."""
    asked = client.create_session(subject=CUSTOMER)
    client.append(asked.session_id, {"type": "message.appended", "attributes": {"role": "user"}, "content": {"text": "Please forget me."}})
    sessions = list(client.sessions(subject_id=asked.subject_id))
    session = max(sessions, key=lambda each: each.sequence)
    say(f"{len(sessions)} sessions concern the customer; one of them, before:")
    _show(client, session)
    erasure = erasing.erase(client, "subject", CUSTOMER, wait=True, timeout_s=_PATIENCE_S, receipts=_RECEIPTS)
    _TRUST.write_bytes((settings.signers_path / _TRUSTED).read_bytes())
    say("the same session after it:")
    _show(client, session)
    verdict = verify(iter(client.export(session.session_id)))
    say("its chain is whole: what it says of itself can still be proven, and what is gone is said:")
    print(verdict)
    receipts = verify_receipts(_RECEIPTS, _TRUST)
    say(f"and the receipts, checked with nothing but {_RECEIPTS} and the public keys in {_TRUST}:")
    print(receipts)
    held = erasure.status == "complete" and verdict.ok and verdict.opened == 0 and receipts.ok and _is_nobody(client)
    return session.session_id if held else None


def _show(client: Client, session: Session) -> None:
    """The first events that carry content, or did."""
    told = (event for event in client.events(session.session_id) if event.content is not None or event.gap is not None)
    for event in islice(told, _EVENTS):
        print(event_line(event))


def _is_nobody(client: Client) -> bool:
    """Whether the shop's own id leads nowhere any more."""
    try:
        client.erase_subject(CUSTOMER)
    except NotFound:
        return True
    return False
