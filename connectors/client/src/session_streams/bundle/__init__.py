"""Checks a Session Bundle with nothing but its file and the public keys of who made it: `python -m session_streams.bundle verify FILE`.

docs/bundle.md states the format and what is checked. A file is verified, or the first thing wrong with it is named; nothing in a file,
however made, leads to anything else. No byte is left unchecked.

    verdict = verify("session.bundle", "trust.json")
    for item in items("session.bundle", "trust.json", "work"):
        print(item["kind"], item["id"], item["latest"]["type"])

A bundle shows who says what the session was, and that nobody changed it since. That it is the whole session as it stands today shows a
comparison of `end_sequence` and `last_hash` with those known from elsewhere.
"""

from .form import SECTIONS
from .verdict import VERIFIED, Refuted, Section, Verdict
from .verifying import items, verify

__all__ = ["SECTIONS", "VERIFIED", "Refuted", "Section", "Verdict", "items", "verify"]
