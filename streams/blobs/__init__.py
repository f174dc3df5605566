"""Bytes of any size under a name, in a local directory or an S3-compatible bucket; never whole in memory.

`blobs.py` says what a store does, `object_store.py` does it through obstore, `local.py` adds what a directory needs to keep
its word after a power cut; `bucket.py` has small objects that are created once; `opening.py` reads the setting. What lies here is
sealed already: names and sizes are all that a store learns. The only importer of `obstore`.
"""

from streams.blobs.blobs import Blob, BlobStore
from streams.blobs.opening import open_blob_store, open_bucket

__all__ = ["Blob", "BlobStore", "open_blob_store", "open_bucket"]
