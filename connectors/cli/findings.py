"""What a look at an installation has found: what was seen, and what to do."""

from typing import Literal

from msgspec import Struct

Status = Literal["ok", "warning", "failed"]


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    check: str
    status: Status
    found: str
    to_do: str = ""


def ok(check: str, seen: str) -> Finding:
    return Finding(check=check, status="ok", found=seen)


def warning(check: str, seen: str, to_do: str) -> Finding:
    return Finding(check=check, status="warning", found=seen, to_do=to_do)


def failed(check: str, seen: str, to_do: str) -> Finding:
    return Finding(check=check, status="failed", found=seen, to_do=to_do)
