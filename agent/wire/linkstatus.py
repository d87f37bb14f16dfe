"""What the vendor's link query answers, as a word.

The one rule: up and down are said only by an answer of exactly the known form; anything else is bad input, never down.
"""

import re
from typing import Final

from agent.errors import BadDocument

UP: Final = "up"
DOWN: Final = "down"
_LINE: Final = re.compile(r"link status[ \t]*:[ \t]*(up|down)", re.IGNORECASE | re.ASCII)


def parse_link_status(raw: bytes) -> str:
    """UP or DOWN of `hccn_tool -i <device> -link -g`, which answers with one line `link status: UP`
    (ascend-common devmanager/hccn/hccn_tool.go, GetNPULinkStatus).

    Raises BadDocument: no UTF-8, no such line, other lines beside it, or two of them.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadDocument(f"byte {error.start} is not UTF-8", place="link query") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    match = _LINE.fullmatch(lines[0]) if len(lines) == 1 else None
    if match is None:
        shown = repr(text.strip()[:60]) if lines else "nothing"
        raise BadDocument(f"answered {shown}, not 'link status: UP' or 'link status: DOWN'", place="link query")
    return match[1].lower()
