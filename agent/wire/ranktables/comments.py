"""Takes the comments out of a text that is meant to be JSON, as the vendor's own samples carry them.

The one rule: every character that stays keeps its line and column, so that places found afterwards are the file's.
"""

import re
from typing import Final

_PART: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOT_A_BREAK: Final = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """The text with `// …` and `/* … */` outside of strings turned into blanks; one left open runs to the end."""

    def blank(match: re.Match[str]) -> str:
        part = match[0]
        return part if part.startswith('"') else _NOT_A_BREAK.sub(" ", part)

    return _PART.sub(blank, text)
