"""What is sealed and kept in the blob store: uploads of workers (snapshots, native material), and content too large for a record.

`snapshots.py` takes an upload, gives it back and throws it away, `texts.py` does so with content, `sweep.py` throws away what
nothing refers to, `names.py` says what lies under which name.
"""

from streams.sealed_blobs.names import Place
from streams.sealed_blobs.snapshots import Download, Snapshots, Uploaded
from streams.sealed_blobs.sweep import Swept, sweep
from streams.sealed_blobs.texts import LargeTexts

__all__ = ["Download", "LargeTexts", "Place", "Snapshots", "Swept", "Uploaded", "sweep"]
