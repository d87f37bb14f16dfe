"""Changes out of listings: each difference once, and the unreadable is not gone."""

from contextlib import aclosing

from agent.adapters.polling import Listing, watch_by_listing
from agent.ports import ConfigMap

ONE = ConfigMap("a", "x", data={"v": "1"}, resource_version="1", uid="u-1")
EDITED = ConfigMap("a", "x", data={"v": "2"}, resource_version="1", uid="u-1")
ANEW = ConfigMap("a", "x", data={"v": "2"}, resource_version="2", uid="u-2")
OTHER = ConfigMap("a", "y", resource_version="3", uid="u-3")
NONE: frozenset[tuple[str, str]] = frozenset()


async def changes_of(*listings: Listing) -> list[tuple[str, str, str]]:
    """All changes of listings that follow each other; the last one must add `y`, which ends the watch."""
    waiting = list(listings)

    async def look() -> Listing:
        return waiting.pop(0)

    seen: list[tuple[str, str, str]] = []
    async with aclosing(watch_by_listing(look, 0)) as changes:
        async for kind, document in changes:
            seen.append((kind, document.name, document.resource_version))
            if document.name == "y":
                break
    return seen


async def test_an_edit_that_keeps_the_version_is_a_change() -> None:
    assert await changes_of(([ONE], NONE), ([ONE], NONE), ([EDITED], NONE), ([EDITED, OTHER], NONE)) == [
        ("set", "x", "1"),
        ("set", "x", "1"),
        ("set", "y", "3"),
    ]


async def test_an_object_made_anew_between_two_looks_was_gone() -> None:
    assert await changes_of(([ONE], NONE), ([ANEW, OTHER], NONE)) == [
        ("set", "x", "1"),
        ("gone", "x", "1"),
        ("set", "x", "2"),
        ("set", "y", "3"),
    ]


async def test_the_unreadable_is_not_gone() -> None:
    broken = frozenset({("a", "x")})
    assert await changes_of(([ONE], NONE), ([], broken), ([ONE], NONE), ([OTHER], NONE)) == [
        ("set", "x", "1"),
        ("gone", "x", "1"),
        ("set", "y", "3"),
    ]
