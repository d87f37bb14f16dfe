"""The tree drawn in agent/errors.py is the tree there is."""

import inspect
import re

from agent import errors

LINE = re.compile(r"^(?P<rail>[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?: +(?P<verdict>retry|park|stop)\b)?")


def drawn() -> dict[str, tuple[str, str]]:
    """Class -> its parent and, where the drawing says one, its verdict."""
    found: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = LINE.match(line.removeprefix("    "))
        if match is None or not (line.startswith("    ") and ("──" in line or line.strip() == "AgentError")):
            continue
        depth = 0 if "──" not in line else len(match["rail"]) // 4 + 1
        above = [*above[:depth], match["name"]]
        found[match["name"]] = (above[-2] if depth else "", match["verdict"] or "")
    return found


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    classes = {
        name: one
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, errors.AgentError) and one.__module__ == errors.__name__
    }
    parents = {
        name: "" if one is errors.AgentError else next(base.__name__ for base in one.__bases__)
        for name, one in classes.items()
    }
    assert {name: parent for name, (parent, _) in drawn().items()} == parents


def test_each_drawn_verdict_is_the_class_s_own() -> None:
    verdicts = {name: verdict for name, (_, verdict) in drawn().items() if verdict}
    assert len(verdicts) >= 6
    assert {name: str(getattr(errors, name).verdict) for name in verdicts} == verdicts
