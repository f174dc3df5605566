"""zstd, with the size of what comes out bounded before any memory is set aside for it."""

import threading
from typing import Final

import zstandard

_OPENED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of decompressed bytes; a sealed record on the dead-letter topic is larger than the content of an event may be."""


class _OfThread(threading.local):
    """Neither may be used by two threads at once."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd: Final = _OfThread()


def compressed(text: bytes) -> bytes:
    """One frame that tells the size of its content."""
    return _zstd.compressor.compress(text)


def decompressed(frame: bytes) -> bytes:
    """Raises ValueError where it is no frame, or declares more than may come out."""
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= _OPENED_BYTES_MAX:
            raise ValueError(f"a zstd frame of {size} bytes")
        return _zstd.decompressor.decompress(frame, max_output_size=_OPENED_BYTES_MAX, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError("no zstd frame") from error
