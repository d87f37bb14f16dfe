"""What is declared is used, and what is used is declared."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

from houseplan import ROOT, Room, rooms

GIVEN_BY = packages_distributions()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OURS = {"agent", *(path.stem for path in (ROOT / "tests").glob("*.py")), "contracts", "bench", "services", "real"}
TOOLS = {
    "build",
    "import-linter",
    "mypy",
    "pytest-asyncio",
    "pytest-cov",
    "pytest-randomly",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-pyyaml",
}
"""Used by their own commands or by pytest, named in Makefile or pyproject.toml and not imported."""


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _declared(*extras: str) -> set[str]:
    needed = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        needed += PROJECT["project"]["optional-dependencies"][extra]
    return {_name(one) for one in needed}


def _imported(some: tuple[Room, ...]) -> Iterator[tuple[str, str]]:
    """Module and the room that imports it, the standard library and our own left out."""
    for room in some:
        for node in ast.walk(room.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in OURS:
                    yield name, room.name


def _distributions(module: str) -> set[str]:
    """Distributions that give a module; of a namespace several do."""
    return {one.lower().replace("_", "-") for one in GIVEN_BY.get(module.partition(".")[0], [])}


def test_the_agent_imports_nothing_undeclared() -> None:
    runtime = _declared()
    strangers = {place for module, place in _imported(rooms("agent")) if not _distributions(module) & runtime}
    assert strangers - _allowed() == set()


def _allowed() -> set[str]:
    """Imports of optional clients; each stands in an extra of pyproject.toml and in one file."""
    extras = PROJECT["project"]["optional-dependencies"]
    optional = {_name(one) for name, needed in extras.items() if name != "dev" for one in needed}
    return {place for module, place in _imported(rooms("agent")) if _distributions(module) & optional}


def test_the_tests_import_nothing_undeclared() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    known = _declared(*extras)
    assert {place for module, place in _imported(rooms("tests")) if not _distributions(module) & known} == set()


def test_every_dependency_is_used() -> None:
    used: set[str] = set()
    for module, _ in (*_imported(rooms("agent")), *_imported(rooms("tests"))):
        used |= _distributions(module)
    extras = PROJECT["project"]["optional-dependencies"]
    assert _declared(*extras) - used - TOOLS == set()


def test_every_tool_that_is_not_imported_is_called() -> None:
    called = (ROOT / "Makefile").read_text(encoding="utf-8") + (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    called += "".join(room.text for room in rooms("tests") if room.path.name != "test_dependencies.py")
    marks = {
        "import-linter": "lint-imports",
        "pytest-asyncio": "asyncio_mode",
        "pytest-cov": "--cov",
        "pytest-rerunfailures": "--reruns",
        "pytest-timeout": "timeout =",
        "types-pyyaml": "[tool.mypy]",
        "pytest-randomly": "randomly",
        "pytest-xdist": "-n",
    }
    assert [tool for tool in sorted(TOOLS) if marks.get(tool, tool) not in called] == []
