"""Trouble of one kind, said when it begins and when it changes, not at each try.

The one rule: a loop has its own, and says when it is over, so that the same trouble later is said again.
"""

import traceback
from collections.abc import Callable


class Trouble:
    """What goes wrong in one loop."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = ""

    def tell(self, text: str) -> None:
        """Say it, unless it is what was said last."""
        if text != self._last:
            self._last = text
            self._say(text)

    def over(self) -> None:
        """The loop works."""
        self._last = ""


def defect(error: Exception) -> str:
    """An error nobody foresaw, and where it came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"in {frame.name}, line {frame.lineno}"
    return f"{type(error).__name__}: {error} ({where}); left as it is until the next start"
