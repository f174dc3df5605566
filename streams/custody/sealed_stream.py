"""A stream of bytes of any length, sealed chunk by chunk, so that neither side ever holds more than one chunk.

stream  = header | chunk 0 | chunk 1 | ... | last chunk
header  = 0x01 | salt (16) | nonce prefix (7), both random
chunk   = AES-256-GCM(key, nonce, up to 1 MiB of plaintext, associated data = header); the tag's 16 bytes at its end
nonce   = nonce prefix | number of the chunk from 0 (4, big-endian) | 0x01 for the last chunk, else 0x00
key     = HKDF-SHA-256(secret, salt, "session-streams/stream/v1" | workspace | session | item | part, each with its length in front)

Every chunk but the last is full; the last one holds at least a byte, unless the whole stream is empty. The number in the
nonce finds chunks that change places or come twice, the mark of the last one finds a stream that was cut or made longer,
header and key find a chunk of another stream. So each chunk is handed out only when it is that chunk of that stream; who reads
to the end and is told of no error has read all of it. This is the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár
(2015). A secret may seal many streams: the salt gives each a key of its own.
"""

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from streams.custody.sealed_bytes import UNREADABLE, length_prefixed
from streams.errors import ContentUnavailable

CHUNK_BYTES: Final = 1024 * 1024
"""Of plaintext."""
SALT_BYTES: Final = 16
PREFIX_BYTES: Final = 7
HEADER_BYTES: Final = 1 + SALT_BYTES + PREFIX_BYTES
TAG_BYTES: Final = 16

_INFO: Final = b"session-streams/stream/v1"
_VERSION: Final = b"\x01"
_SEALED_CHUNK_BYTES: Final = CHUNK_BYTES + TAG_BYTES


class StreamPlace(Struct, frozen=True):
    """What a stream is of, and which part of it: it opens nowhere else."""

    workspace_id: str
    session_id: str
    item_id: str
    part: str


def stream_key(secret: bytes, salt: bytes, place: StreamPlace) -> bytes:
    """32 bytes."""
    info = _INFO + b"".join(length_prefixed(part.encode()) for part in (place.workspace_id, place.session_id, place.item_id, place.part))
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)


class StreamSealer:
    """Takes plaintext in pieces of any size, gives sealed bytes to be written one after the other. Not thread-safe."""

    def __init__(self, secret: bytes, place: StreamPlace, *, random: bytes | None = None) -> None:
        """`random` (salt and nonce prefix, 23 bytes) is given by test vectors only: twice the same would unseal both streams."""
        random = os.urandom(SALT_BYTES + PREFIX_BYTES) if random is None else random
        self._header = _VERSION + random
        self._prefix = random[SALT_BYTES:]
        self._cipher = AESGCM(stream_key(secret, random[:SALT_BYTES], place))
        self._held = bytearray()
        self._number = 0

    def update(self, data: bytes | memoryview) -> list[bytes]:
        """What is complete by now: empty while less than a chunk has come."""
        self._held += data
        made: list[bytes] = []
        # A full chunk is held back until more has come: it may be the last.
        while len(self._held) > CHUNK_BYTES:
            made.append(self._chunk(bytes(memoryview(self._held)[:CHUNK_BYTES]), last=False))
            del self._held[:CHUNK_BYTES]
        return made

    def finish(self) -> bytes:
        """The last chunk. Nothing may follow."""
        return self._chunk(bytes(self._held), last=True)

    def _chunk(self, plaintext: bytes, *, last: bool) -> bytes:
        sealed = self._cipher.encrypt(_nonce(self._prefix, self._number, last=last), plaintext, self._header)
        self._number += 1
        return self._header + sealed if self._number == 1 else sealed


class StreamOpener:
    """Takes sealed bytes in pieces of any size, gives plaintext that is proven to be in its place. Not thread-safe.

    Both methods raise `ContentUnavailable` (content.unreadable); nothing may be asked of it afterwards.
    """

    def __init__(self, secret: bytes, place: StreamPlace) -> None:
        self._secret, self._place = secret, place
        self._header = b""
        self._cipher: AESGCM | None = None
        self._held = bytearray()
        self._number = 0

    def update(self, data: bytes | memoryview) -> list[bytes]:
        self._held += data
        if self._cipher is None:
            if len(self._held) < HEADER_BYTES:
                return []
            self._cipher = self._begin()
        made: list[bytes] = []
        while len(self._held) > _SEALED_CHUNK_BYTES:
            made.append(self._chunk(self._cipher, bytes(memoryview(self._held)[:_SEALED_CHUNK_BYTES]), last=False))
            del self._held[:_SEALED_CHUNK_BYTES]
        return made

    def finish(self) -> bytes:
        """The last chunk's plaintext: that it comes without an error says that nothing is missing."""
        if self._cipher is None or len(self._held) < TAG_BYTES:
            raise ContentUnavailable(f"sealed stream: cut within chunk {self._number}", code=UNREADABLE)
        plaintext = self._chunk(self._cipher, bytes(self._held), last=True)
        if not plaintext and self._number > 1:
            raise ContentUnavailable("sealed stream: its last chunk is empty", code=UNREADABLE)
        return plaintext

    def _begin(self) -> AESGCM:
        self._header = bytes(self._held[:HEADER_BYTES])
        del self._held[:HEADER_BYTES]
        if self._header[:1] != _VERSION:
            raise ContentUnavailable(f"sealed stream: version {self._header[0]} is not known here", code=UNREADABLE)
        return AESGCM(stream_key(self._secret, self._header[1 : 1 + SALT_BYTES], self._place))

    def _chunk(self, cipher: AESGCM, sealed: bytes, *, last: bool) -> bytes:
        try:
            plaintext = cipher.decrypt(_nonce(self._header[1 + SALT_BYTES :], self._number, last=last), sealed, self._header)
        except InvalidTag:
            detail = f"sealed stream: chunk {self._number} is altered, out of its place, or cut"
            raise ContentUnavailable(detail, code=UNREADABLE) from None
        self._number += 1
        return plaintext


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return b"%b%b%c" % (prefix, number.to_bytes(4, "big"), last)
