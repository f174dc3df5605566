"""What is sealed and kept in the blob store: uploads of workers (snapshots, native material), and content too large for a record.

`snapshots.py` takes an upload and gives it back, `texts.py` does so with content, `discarding.py` throws both away for ever, `sweep.py`
does so with what nothing refers to, `names.py` says what lies under which name.
"""

from streams.sealed_blobs.discarding import Discard, Discarded
from streams.sealed_blobs.names import Place
from streams.sealed_blobs.snapshots import Download, Snapshots, Uploaded
from streams.sealed_blobs.sweep import Swept, sweep
from streams.sealed_blobs.texts import LargeTexts

__all__ = ["Discard", "Discarded", "Download", "LargeTexts", "Place", "Snapshots", "Swept", "Uploaded", "sweep"]
