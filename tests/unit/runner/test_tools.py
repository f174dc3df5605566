"""What a recorded tool call is to a runner."""

import json

import pytest

from connectors.runner import tools
from connectors.runner.tools import FileWrite, Replacement

CWD = "/home/dev/harbour"


def write_of(name: str, **given: object) -> FileWrite | None:
    return tools.file_write(name, given, CWD)


def test_a_write_is_the_whole_file_below_the_workspace() -> None:
    assert write_of("Write", file_path=f"{CWD}/a/b.md", content="text") == FileWrite("a/b.md", content="text")


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/etc/passwd", "etc/passwd"),
        (f"{CWD}/../../x", "x"),
        ("../../../x", "x"),
        ("C:\\work\\x.py", "work/x.py"),
        ("/", "unnamed"),
        ("a/./b", "a/b"),
    ],
)
def test_no_path_leads_out_of_the_workspace(path: str, below: str) -> None:
    write = write_of("Write", file_path=path, content="")
    assert write is not None
    assert ".." not in write.path.split("/")
    assert not write.path.startswith("/")
    assert write.path == below


def test_an_edit_replaces_once_or_everywhere() -> None:
    once = write_of("Edit", file_path="f", old_string="a", new_string="b")
    everywhere = write_of("Edit", file_path="f", old_string="a", new_string="b", replace_all=True)
    assert once is not None
    assert everywhere is not None
    assert once.applied_to("a a") == "b a"
    assert everywhere.applied_to("a a") == "b b"


def test_an_edit_of_a_file_that_is_not_there_begins_with_what_the_recording_shows_of_it() -> None:
    write = write_of("Edit", file_path="f", old_string="x = 1\n", new_string="x = 2\n")
    assert write is not None
    assert write.applied_to(None) == "x = 2\n"
    assert write.applied_to("y = 1\n") == "y = 1\nx = 2\n"


def test_many_edits_are_one_write_in_order() -> None:
    write = write_of("MultiEdit", file_path="f", edits=[{"old_string": "a", "new_string": "b"}, {"old_string": "b", "new_string": "c"}])
    assert write == FileWrite("f", replacements=(Replacement("a", "b"), Replacement("b", "c")))
    assert write.applied_to("a") == "c"


@pytest.mark.parametrize("name", ["Read", "Grep", "TodoWrite", "Bash"])
def test_what_only_reads_or_acts_elsewhere_writes_nothing(name: str) -> None:
    assert write_of(name, file_path="f", content="x") is None


def test_an_action_names_its_call_so_that_the_same_command_twice_is_two_actions() -> None:
    first, second = (tools.action(call, "Bash", {"command": "make test"}) for call in ("call_1", "call_2"))
    assert first is not None
    assert second is not None
    assert first.text != second.text
    assert json.loads(first.text) == {"call": "call_1", "tool": "Bash", "input": {"command": "make test"}}


@pytest.mark.parametrize(
    ("name", "provider"), [("Bash", "shell"), ("WebFetch", "web"), ("Task", "agent"), ("mcp__linear__list_issues", "mcp"), ("Read", None)]
)
def test_what_a_provider_does_is_an_action(name: str, provider: str | None) -> None:
    action = tools.action("call_1", name, {})
    assert (None if action is None else action.provider) == provider


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("Bash", {"command": "git push origin main"}, True),
        ("Bash", {"command": "ls && git  commit -m x"}, True),
        ("Bash", {"command": "rm -rf build"}, True),
        ("Bash", {"command": "git status"}, False),
        ("Bash", {"command": "make test"}, False),
        ("mcp__linear__create_issue", {}, True),
        ("mcp__linear__list_issues", {}, False),
        ("Write", {"command": "git push"}, False),
    ],
)
def test_what_changes_something_that_others_see_wants_an_approval(name: str, given: dict[str, object], wanted: bool) -> None:
    assert tools.wants_approval(name, given) is wanted
