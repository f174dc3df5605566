"""A worker that executes a recorded transcript as if live: it claims, reports, waits, asks, acts outside, and is killed.

    transcript -> plan (pure) -> worker -> service (HTTP)        what is to be done, and its doing
                                     \\---> workspace (files)      performed in a real directory, kept as snapshots
                                     \\---> provider (HTTP)        performed once under the identity of its effect

`tools.py` says what a tool call is to a runner, `plan.py` cuts a transcript into steps, `progress.py` reads from the log how far
they are, `recovery.py` begins where another worker ended, `worker.py` does the steps, `acting.py` those that leave the house.
"""
