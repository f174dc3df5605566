"""The session behind `tests/vectors/bundle.ndjson`; run it to write that file and its trust document anew after a change of the format."""

from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from streams.custody.signing import SigningKey
from streams.session.events import RunAttributes, SessionAttributes
from tests.support.bundles import bundle_of, trust_of
from tests.support.examples import SUBJECT, made_up_id
from tests.support.exports import History

FILE: Final = Path(__file__).parent.parent / "vectors" / "bundle.ndjson"
TRUST: Final = FILE.with_name("bundle-trust.json")
KEY: Final = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
"""Of the seed 00 01 .. 1f, so that anybody can sign a vector of their own."""


def lines() -> list[bytes]:
    """A Run, and a message in it that was erased."""
    run = made_up_id("run")
    told = History().tell("session.created", SessionAttributes(origin="live"), subject_id=SUBJECT)
    told.tell("run.accepted", RunAttributes(lane="a"), run_id=run)
    told.tell(text='"hello"', run_id=run, subject_id=SUBJECT, gone="erased")
    return told.tell("run.completed", RunAttributes(outcome="done", reward=0.5), run_id=run).lines()


if __name__ == "__main__":
    FILE.write_bytes(bundle_of(lines(), KEY))
    TRUST.write_bytes(trust_of(KEY) + b"\n")
