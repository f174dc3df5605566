"""Sources: recorded sessions from outside, mapped to commands.

    files -> records (lines) -> claude_code | tau_bench (groups of event bodies) -> session_import (batches) -> transport

`ingest.run_ingest` drives it; `check` reads everything back and compares; `rest` and `direct` are the two transports.
"""
