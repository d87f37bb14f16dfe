"""A dead letter made fit to be read again: the same record with a new message id and without our headers.

The one rule: the id changes, because the old one is among the ids that count as repeats.
"""

from dataclasses import replace
from typing import Final

import orjson

from agent.domain.events import Record
from agent.errors import BadRecord

OURS: Final = "fault-agent-"
MAX_ID: Final = 128


def requeued(letter: Record, stamp: str) -> Record:
    """The record to send again. `stamp` (letters, digits, `-`) makes the id new.

    Raises BadRecord for a letter that cannot be sent again: its value is no JSON object or is nested too deep to be
    given a new id, or it has no key.
    """
    if not letter.key:
        raise BadRecord("KEY_MISSING", "a record needs its node's name as key; it cannot be sent again", place="key")
    try:
        value = orjson.loads(letter.value or b"")
    except orjson.JSONDecodeError as error:
        raise BadRecord("NOT_JSON", f"it cannot be read again as it is: {error}", place="value") from error
    if not isinstance(value, dict):
        raise BadRecord("NOT_JSON", "a JSON object is expected; it cannot be read again as it is", place="value")
    ending = f"-{stamp}"
    old = value.get("id")
    value["id"] = f"{(old if isinstance(old, str) else 'requeued')[: MAX_ID - len(ending)]}{ending}"
    try:
        text = orjson.dumps(value)
    except TypeError as error:
        raise BadRecord("NOT_JSON", "it is nested too deep to be written again", place="value") from error
    headers = tuple((name, text) for name, text in letter.headers if not name.startswith(OURS))
    return replace(letter, value=text, headers=headers)


def header(letter: Record, name: str) -> str:
    """One of our headers of a dead letter (`reason`, `detail`, `source`), empty when it is not there."""
    return next((value.decode("utf-8", "replace") for key, value in letter.headers if key == f"{OURS}{name}"), "")
