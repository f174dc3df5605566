"""Checks a session's export with nothing but its file: `python -m session_streams.export FILE`.

The standard library suffices, and this folder is all that is needed: copied anywhere, it runs as `python -m export FILE`.
docs/export.md states what is checked. A file is verified, or the first thing wrong with it is named: which line, which
position, what differs. Nothing in a file, however made, leads to anything else.

    verdict = verify("session.ndjson")
    for entry in read("session.ndjson"):
        print(entry.sequence, entry.type, entry.content)

- Every byte is looked at: a line that says the same in another form is refused as well.
- An entry is handed out only once it is verified, and its place in the chain with it; that the export is whole is known
  at its end.
- A chain shows that nothing within was changed, dropped, added or moved. That nothing came behind its end, and that
  nobody wrote another history from its beginning, shows a comparison of `last_hash` with one known from elsewhere.
"""

from .reading import Entry, Source, read, verify
from .verdict import VERIFIED, Refuted, Verdict

__all__ = ["VERIFIED", "Entry", "Refuted", "Source", "Verdict", "read", "verify"]
