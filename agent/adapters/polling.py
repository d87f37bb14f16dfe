"""Watching by looking again: turns two listings into the changes between them.

For stores with no way to be told. The one rule: what cannot be read is neither changed nor gone.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal

from agent.adapters.objects import Key, same_content
from agent.ports import ConfigMap

Listing = tuple[Sequence[ConfigMap], frozenset[Key]]
"""What could be read, sorted, and the keys of what is there but could not."""
Change = tuple[Literal["set", "gone"], ConfigMap]


async def watch_by_listing(look: Callable[[], Awaitable[Listing]], seconds: float) -> AsyncGenerator[Change, None]:
    """Each existing object as `set`, then every difference between looks that are `seconds` apart.

    What changes twice between two looks shows once, as it is at the later; an object deleted and made anew
    shows as `gone` and `set`.
    """
    known: dict[Key, ConfigMap] = {}
    while True:
        documents, unreadable = await look()
        now = {(document.namespace, document.name): document for document in documents}
        for key in [key for key in known if key not in now and key not in unreadable]:
            yield "gone", known.pop(key)
        for key, document in now.items():
            before = known.get(key)
            if before is not None and before.uid != document.uid:
                yield "gone", known.pop(key)
                before = None
            if before is None or _differs(before, document):
                known[key] = document
                yield "set", document
        await asyncio.sleep(seconds)


def _differs(before: ConfigMap, after: ConfigMap) -> bool:
    return before.resource_version != after.resource_version or not same_content(before, after)
