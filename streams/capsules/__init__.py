"""Continuation capsules, pure: what one says, what is signed of it, and whether it may be imported.

A capsule carries what an idle session's harness needs to go on elsewhere: the private part sealed, everything else under signatures.
Nothing here reads a key, a log, a clock or a file; `streams.errors` and custody are their callers'.

    model.py       the request of an import, to the last field (seed *Import a qualified native continuation capsule*)
    digests.py     which bytes each digest and each signature is of
    checks.py      the eight reasons to refuse, in their order, each a function of the request and of what is known
    splitting.py   takes the content out of a body while it comes, so that it is never held as text
"""
