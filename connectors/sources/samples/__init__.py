"""Samples, made up: transcripts with an agent, a compaction, an interruption and gaps, and trajectories with tool errors.

`FOLDER` holds them all; `session-streams ingest` takes it as it is.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
