"""`erase`, `erasures`: asks for an erasure, shows how it goes and who is awaited, and keeps its receipts.

A file of receipts has one DSSE envelope a line, one for each step, as the service signed them: `receipts verify` checks it offline.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from connectors.cli.console import counted, emit_json, progress, remark
from connectors.cli.found import write_private
from session_streams import Client, Erasure, ErasureTakesLonger
from session_streams.models import encoded
from streams.errors import Misconfigured, Retriable

_COMPACTION: Final = "compaction"
"""Named as a holder while the broker has to rewrite what a tombstone stands for."""
_NAMED: Final = 3
"""Holders that a line names; the others are counted."""


def erase(
    client: Client,
    scope: Literal["subject", "session"],
    target: str,
    *,
    wait: bool,
    timeout_s: float | None = None,
    receipts: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> Erasure:
    """Asks, and with `wait` stays until it is complete; shows it with its last receipt, or writes its receipts to a file where one is
    named.

    Raises `Retriable` (erasure.awaited) where it takes longer than `timeout_s`: `erasures show` goes on looking; `Misconfigured` where
    nothing can be written, and what the client raises.
    """
    asked = client.erase_subject(target) if scope == "subject" else client.erase_session(target)
    erasure_id, quiet = asked.erasure_id, quiet or as_json
    found = waited_for(client, erasure_id, timeout_s=timeout_s, quiet=quiet) if wait else client.erasure(erasure_id)
    if receipts is not None:
        keep_receipts(found, receipts)
    show(found, as_json=as_json)
    if wait and receipts is None and not as_json:
        # The last one, in the form that it is signed in: whoever keeps this line keeps the evidence.
        print(encoded(found.receipts[-1]).decode(), flush=True)
    return found


def waited_for(client: Client, erasure_id: str, *, timeout_s: float | None = None, quiet: bool = False) -> Erasure:
    """Once it is complete. Raises `Retriable` (erasure.awaited), and what the client raises."""
    try:
        with progress("erase", "holders", quiet=quiet) as report:
            return client.wait_for_erasure(erasure_id, timeout_s=timeout_s, on_progress=_told(report))
    except ErasureTakesLonger as longer:
        raise Retriable(f"{longer}; it goes on, and `session-streams erasures show {erasure_id}` tells", code="erasure.awaited") from None


def keep_receipts(erasure: Erasure, path: Path) -> None:
    """Raises `Misconfigured`."""
    try:
        write_private(path, b"".join(encoded(receipt) + b"\n" for receipt in erasure.receipts))
    except OSError as error:
        raise Misconfigured(f"{error.filename or path}: {error.strerror}") from error
    remark(f"{counted(len(erasure.receipts), 'receipt')} in {path}; `session-streams receipts verify` checks such a file offline")


def show(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        emit_json(erasure.raw)
        return
    print("\n".join(lines_of(erasure)), flush=True)


def lines_of(erasure: Erasure) -> list[str]:
    """What a person is told of an erasure."""
    begun = _moment(erasure.accepted_at)
    steps = {
        "accepted": erasure.accepted_at, "destroyed": erasure.destroyed_at, "enforced": erasure.enforced_at,
        "complete": erasure.complete_at,
    }  # fmt: skip
    lines = [f"{erasure.erasure_id}  {erasure.status}  {erasure.scope} {erasure.scope_id}"]
    for step, at in steps.items():
        if at is None:
            continue
        after = "" if step == "accepted" else f"  {(_moment(at) - begun).total_seconds():,.1f} s after it was accepted"
        lines.append(f"    {step:<10}{at[:19]}Z{after}")
    removed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in sorted(erasure.counts.items()) if count)
    if removed:
        lines.append(f"    removed   {removed}")
    if erasure.receipts:
        keys = sorted({signature["keyid"][:16] for receipt in erasure.receipts for signature in receipt["signatures"]})
        lines.append(f"    receipts  {len(erasure.receipts)}, signed by {', '.join(keys)}")
    lines += [f"    awaits    {each.holder}: {each.reason}" for each in erasure.awaited]
    return lines


def _told(report: Callable[[int, int | None, str], None]) -> Callable[[Erasure], None]:
    """Tells a progress bar: of all that were ever awaited, how many are not any more."""
    most = 0

    def tell(now: Erasure) -> None:
        nonlocal most
        awaited = [each.holder for each in now.awaited]
        most = max(most, len(awaited))
        more = f" and {len(awaited) - _NAMED} more" if len(awaited) > _NAMED else ""
        rest = f", awaits {', '.join(awaited[:_NAMED])}{more}" if awaited else ""
        # Nobody works towards compaction, so how long it takes is not told by who was done before.
        total = None if awaited == [_COMPACTION] else most or None
        report(most - len(awaited), total, f"{now.status}{rest}")

    return tell


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
