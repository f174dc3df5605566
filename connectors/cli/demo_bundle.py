"""The demonstration of a Session Bundle: a session leaves the installation as one signed file, which says what is not in it.

1 the bundle of a session, and the public keys of who signed it     3 one byte of it changed: it is evidence of nothing
2 verified with nothing but these two files; its gaps
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from connectors.cli.bundling import whole_file
from session_streams import Client
from session_streams.bundle import verify

_BUNDLE: Final = Path("build") / "demo-session.bundle"
_TRUST: Final = Path("build") / "demo-trust.json"


def show_bundle(client: Client, session_id: str, say: Callable[[str], None]) -> bool:
    """Of a session whose content was erased. Whether everything came out as it should. Raises what the client raises."""
    _BUNDLE.parent.mkdir(exist_ok=True)
    with whole_file(_BUNDLE) as file:
        client.bundle(session_id, file)
    # Behind the bundle: the first one makes the key that signs it.
    _TRUST.write_text(json.dumps(client.signing_keys()), encoding="utf-8")
    say(f"{_BUNDLE}, checked with nothing but the public keys in {_TRUST}: what is not in it is said, and why")
    verdict = verify(_BUNDLE, _TRUST, session_id=session_id)
    print(verdict)
    changed = bytearray(_BUNDLE.read_bytes())
    changed[len(changed) // 2] ^= 1
    refused = verify(bytes(changed), _TRUST)
    say("the same with one bit of it changed:")
    print(refused)
    erased = any(gap["reason"] == "erased" for section in verdict.sections[:1] for gap in section.gaps)
    return verdict.ok and erased and not refused.ok
