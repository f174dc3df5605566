"""The pages keep up with the code: tests that they name exist, links lead somewhere, commands are commands.

What runs in a tour of the README is not run here, only read: its blocks are `sh`, one after the other in one shell.
"""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from connectors.cli.main import app

REPOSITORY = Path(__file__).parents[2]
IGNORED = {".venv", ".session-streams", "build", "node_modules", "target"}
PAGES = sorted(
    path
    for path in REPOSITORY.rglob("*.md")
    if not any(part in IGNORED or (part.startswith(".") and part != ".") for part in path.relative_to(REPOSITORY).parts)
)
_TEST = re.compile(r"`([a-z_/]+\.py)::([A-Za-z_0-9:]+)`")
_NO_TEST = re.compile(r"(?:Explains$|Out of scope: \w)")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"(?<![\w/.-])session-streams (?=[a-z])([^\n`|;&<>#)]+)")
_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def collected(path: Path) -> frozenset[str]:
    """`function`, `Class` and `Class::method` of a test file; names that are assigned count, as state machines are."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


@pytest.mark.parametrize("page", ["docs/promises.md", "docs/seeds.md", "ARCHITECTURE.md"])
def test_each_test_that_is_named_exists(page: str) -> None:
    references = _TEST.findall(read(REPOSITORY / page))
    assert references
    missing = []
    for file, name in references:
        path = REPOSITORY / "tests" / file
        if not path.is_file() or name not in collected(path):
            missing.append(f"{file}::{name}")
    assert missing == []


def test_each_sentence_of_the_seeds_names_a_test_or_says_why_there_is_none() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", read(REPOSITORY / "docs" / "seeds.md"), re.MULTILINE)
    assert len(rows) > 100
    assert [said for said, shown in rows[1:] if said != "sentence" and not (_TEST.search(shown) or _NO_TEST.match(shown))] == []


def test_each_of_the_nine_promises_has_a_test_of_its_name_on_a_real_broker() -> None:
    sections = re.split(r"^## ([0-9])\. ", read(REPOSITORY / "docs" / "promises.md"), flags=re.MULTILINE)
    by_number = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert sorted(by_number) == [str(number) for number in range(1, 10)]
    for number, section in by_number.items():
        own = [name for file, name in _TEST.findall(section) if file.startswith("kafka/") and name.startswith(f"test_promise_{number}_")]
        assert own, f"promise {number}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in links(read(page)) if not leads_somewhere(page, target)]
    assert broken == []


def links(text: str) -> list[str]:
    """Relative targets, outside of code."""
    prose = _FENCE.sub("", text)
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return False
    return not fragment or path.suffix != ".md" or fragment in slugs(read(path))


def slugs(text: str) -> set[str]:
    """The names under which a renderer reaches the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_named_exist_with_their_options(page: Path) -> None:
    wrong = [f"session-streams {line}" for line in command_lines(read(page)) if not is_command(line)]
    assert wrong == []


def command_lines(text: str) -> Iterator[str]:
    """What follows `session-streams` in blocks of code and between backticks, to the end of the command."""
    code = [block for _, block in _FENCE.findall(text)] + re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    for piece in code:
        for line in _COMMAND.findall(piece.replace("\\\n", " ")):
            yield line.strip()


def is_command(line: str) -> bool:
    command: Any = get_command(app)
    words = shlex.split(line.replace("…", "").replace("'", ""), comments=True)
    alternatives = words[0].split("|") if words else []
    if len(alternatives) > 1:
        return all(word in command.commands for word in alternatives)
    while words and hasattr(command, "commands"):
        # `keys`, `topics`: a group may be named by itself.
        name = words.pop(0)
        if name not in command.commands:
            return False
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return all(word.split("=")[0] in known for word in words if word.startswith("-") and word != "-")


@pytest.mark.parametrize("page", [page for page in PAGES if "make " in read(page)], ids=named)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", read(REPOSITORY / "Makefile"), re.MULTILINE))
    code = "\n".join(re.findall(r"`[^`\n]+`", _FENCE.sub("", read(page))) + [block for _, block in _FENCE.findall(read(page))])
    assert {target for target in _MAKE.findall(code) if target not in targets} == set()


def test_the_tour_is_one_shell_script_whose_python_compiles() -> None:
    blocks = [block for language, block in _FENCE.findall(read(REPOSITORY / "README.md")) if language == "sh"]
    script = "".join(blocks)
    assert len(blocks) >= 5
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""
    programs = re.findall(r"<< 'PYTHON'\n(.*?)^PYTHON$", script, re.DOTALL | re.MULTILINE)
    assert programs
    for program in programs:
        compile(program, "README.md", "exec")


def test_each_decision_is_in_the_index_under_its_title() -> None:
    folder = REPOSITORY / "docs" / "adr"
    index = read(folder / "README.md")
    for page in sorted(folder.glob("[0-9]*.md")):
        number, title = read(page).splitlines()[0].removeprefix("# ").split(". ", 1)
        assert page.name.startswith(f"{number}-")
        assert f"[{number}]({page.name})" in index, title
