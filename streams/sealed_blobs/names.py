"""What lies where.

    <workspace>/<session>/<upload>/                an upload (snap_...): its name is its sender's, derived from the Idempotency-Key
        snap_<secret>.begun                        an attempt at it has begun; its secret may exist from here on
        snap_<secret>                              what that attempt sealed: the secret's id is the name
        receipt                                    the attempt that made it, created once: from here on the upload exists
    <workspace>/<session>/content/<day>/<event>.<id>
                                                   the text of an event that claims it; its key ends with the day

A secret is thus found by names alone, whatever became of the bytes: who throws a blob away destroys its secret first.
"""

import re
from typing import Final

from msgspec import Struct

from streams.custody.claim_checks import ClaimCheck
from streams.errors import Invalid
from streams.session.ids import is_id

RECEIPT: Final = "receipt"
BEGUN_SUFFIX: Final = ".begun"
_UPLOAD: Final = re.compile(r"(ws_[0-9a-f]{32})/(sess_[0-9a-f]{32})/(snap_[0-9a-f]{32})/(receipt|(snap_[0-9a-f]{32})(\.begun)?)")


_TEXT: Final = re.compile(r"ws_[0-9a-f]{32}/sess_[0-9a-f]{32}/content/([0-9]{4}-[0-9]{2}-[0-9]{2})/evt_[0-9a-f]{32}\.[0-9a-f]{32}")


class Place(Struct, frozen=True):
    """Whose it is."""

    workspace_id: str
    session_id: str


class UploadFolder(Struct, frozen=True):
    """All names of one upload. Raises `Invalid` where an id is none: an id of a caller never becomes a path of its own."""

    place: Place
    upload_id: str

    def __post_init__(self) -> None:
        ids = ((self.place.workspace_id, "ws"), (self.place.session_id, "sess"), (self.upload_id, "snap"))
        if not all(is_id(text, prefix) for text, prefix in ids):
            raise Invalid("an upload's workspace, session or id does not fit the pattern")

    @property
    def name(self) -> str:
        return f"{self.place.workspace_id}/{self.place.session_id}/{self.upload_id}"

    @property
    def receipt(self) -> str:
        return f"{self.name}/{RECEIPT}"

    def sealed(self, secret_id: str) -> str:
        return f"{self.name}/{secret_id}"

    def begun(self, secret_id: str) -> str:
        return f"{self.name}/{secret_id}{BEGUN_SUFFIX}"


class UploadName(Struct, frozen=True):
    """A name read back. `secret_id` is None for the receipt."""

    folder: UploadFolder
    secret_id: str | None
    is_begun: bool


def parse_upload_name(name: str) -> UploadName | None:
    """None for what is no part of an upload."""
    found = _UPLOAD.fullmatch(name)
    if found is None:
        return None
    workspace_id, session_id, upload_id, _, secret_id, begun = found.groups()
    return UploadName(UploadFolder(Place(workspace_id, session_id), upload_id), secret_id, begun is not None)


def text_name(claim: ClaimCheck) -> str:
    """Where a claimed text lies. Raises `Invalid` where a part of it fits no pattern."""
    name = f"{claim.workspace_id}/{claim.session_id}/content/{claim.expiry_day}/{claim.event_id}.{claim.blob_id}"
    if _TEXT.fullmatch(name) is None:
        raise Invalid("a claimed text's workspace, session, event or day does not fit the pattern")
    return name


def text_day(name: str) -> str | None:
    """The day at whose end a claimed text can be opened no more; None for what is no text."""
    found = _TEXT.fullmatch(name)
    return None if found is None else found[1]
