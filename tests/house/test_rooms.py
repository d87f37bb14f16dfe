"""Every room opens by saying what it is for, is small, and explains what it gives to others."""

import ast
from collections.abc import Iterator

from houseplan import Room, rooms

AGENT = rooms("agent")
LONGEST = 400
NAMELESS = {"util", "utils", "helper", "helpers", "misc"}

_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_every_room_opens_with_what_it_is_for() -> None:
    assert [room.name for room in AGENT if not _opened(room)] == []


def test_every_room_is_small() -> None:
    lengths = {room.name: len(room.text.splitlines()) for room in AGENT}
    assert {name: lines for name, lines in lengths.items() if lines >= LONGEST} == {}


def test_a_room_is_named_by_what_it_holds() -> None:
    assert [room.name for room in AGENT if NAMELESS & set(room.name.removesuffix(".py").split("/"))] == []


def test_what_a_room_gives_to_others_is_explained() -> None:
    assert [f"{room.name}:{one.lineno} {one.name}" for room in AGENT for one in _unexplained(room.tree)] == []


def test_nothing_is_left_to_do() -> None:
    marks = ("TODO", "FIXME", "XXX", "raise NotImplementedError", "breakpoint(")
    assert [(room.name, mark) for room in AGENT for mark in marks if mark in room.text] == []


def test_nothing_is_printed_past_the_command_line() -> None:
    assert [f"{room.name}:{line}" for room in AGENT for line in _prints(room.tree)] == []


def _opened(room: Room) -> bool:
    said = ast.get_docstring(room.tree) or ""
    return len(said.split()) >= 5 and said.splitlines()[0].endswith((".", ":", "?"))


def _unexplained(tree: ast.Module) -> Iterator[_Named]:
    """Public functions and classes of a module without a docstring."""
    for node in tree.body:
        if isinstance(node, _Named) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield node


def _prints(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno
