"""What a recorded tool call is to a runner: a file that is written, an action at a provider, a wait, or nothing that is done.

The recording alone decides, so that every worker of a Run decides alike:

- Write, Edit and MultiEdit are performed in the workspace;
- whatever a provider would do (a shell, the web, an agent, an MCP server) is an effect; what changes something that others see
  wants an approval first;
- a call that asks a person waits for one, and a command that sleeps waits for a time;
- everything else (reading, searching, lists) is answered by the recording.
"""

import json
import re
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from connectors.sources.claude_records import Json, mapping, text

_PROVIDERS: Final = {"Bash": "shell", "WebFetch": "web", "WebSearch": "web", "Task": "agent"}
_ASKS_A_PERSON: Final = frozenset({"ExitPlanMode", "AskUserQuestion"})
_CHANGES_FOR_OTHERS: Final = re.compile(
    r"\b(git\s+(commit|push|merge|rebase|reset|tag|checkout)|gh\s+\w+\s+(create|edit|merge|close)|rm|curl|npm\s+publish|pip\s+install)\b"
)
_SLEEPS: Final = re.compile(r"\bsleep\s+[0-9]")
_MCP_CHANGES: Final = re.compile(r"__(create|update|delete|send|merge)")


class Replacement(Struct, frozen=True):
    """`old` becomes `new`, once or everywhere."""

    old: str
    new: str
    everywhere: bool = False


class FileWrite(Struct, frozen=True):
    """`path` is below the workspace, with slashes. Either the whole `content`, or replacements in what is there."""

    path: str
    content: str | None = None
    replacements: tuple[Replacement, ...] = ()

    def applied_to(self, before: str | None) -> str:
        """What the file holds afterwards; None: there was none. A recording shows of a file that it edits only the place that it
        edits: a file that is not there begins with that, and so does one that does not have it at its end."""
        if self.content is not None:
            return self.content
        now = before or ""
        for each in self.replacements:
            if each.old not in now or not each.old:
                now += each.old
            now = now.replace(each.old, each.new, -1 if each.everywhere else 1) if each.old else now + each.new
        return now


class Action(Struct, frozen=True):
    """What a provider is asked to do, frozen: its `text` is canonical JSON, and the digest is made of it."""

    provider: str
    text: bytes
    approval: bool


def file_write(name: str, given: Json, cwd: str) -> FileWrite | None:
    """The write that a call is, or None."""
    path = text(given.get("file_path"))
    if path is None:
        return None
    where = _below(path, cwd)
    if name == "Write" and isinstance(given.get("content"), str):
        return FileWrite(where, content=str(given["content"]))
    if name == "Edit":
        edits = [given]
    elif name == "MultiEdit" and isinstance(given.get("edits"), list):
        edits = [mapping(edit) for edit in given["edits"]]  # type: ignore[attr-defined]
    else:
        return None
    return FileWrite(where, replacements=tuple([_replacement(edit) for edit in edits]))


def action(call_id: str, name: str, given: Json) -> Action | None:
    """The action at a provider that a call is, or None. It names its call, so that the same command twice is two actions."""
    provider = _PROVIDERS.get(name) or ("mcp" if name.startswith("mcp__") else None)
    if provider is None:
        return None
    canonical = json.dumps({"call": call_id, "tool": name, "input": given}, sort_keys=True, separators=(",", ":"), default=str)
    return Action(provider, canonical.encode(), wants_approval(name, given))


def wants_approval(name: str, given: Json) -> bool:
    if name == "Bash":
        return _CHANGES_FOR_OTHERS.search(text(given.get("command")) or "") is not None
    return name.startswith("mcp__") and _MCP_CHANGES.search(name) is not None


def asks_a_person(name: str) -> bool:
    return name in _ASKS_A_PERSON


def waits_for_a_time(name: str, given: Json) -> bool:
    """A command that sleeps before it does something."""
    return name == "Bash" and _SLEEPS.search(text(given.get("command")) or "") is not None


def _replacement(edit: Json) -> Replacement:
    return Replacement(text(edit.get("old_string")) or "", text(edit.get("new_string")) or "", edit.get("replace_all") is True)


def _below(path: str, cwd: str) -> str:
    """A path of the recording's machine, as one below the workspace: nothing leads out of it."""
    found = PurePosixPath(path.replace("\\", "/"))
    base = PurePosixPath(cwd.replace("\\", "/"))
    inside = found.relative_to(base) if cwd and found.is_relative_to(base) else found
    parts = [part for part in inside.parts if part not in ("/", "..", ".") and ":" not in part and "\0" not in part]
    return "/".join(parts) or "unnamed"
