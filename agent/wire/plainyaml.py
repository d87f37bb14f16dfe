"""YAML texts in ConfigMaps of other components, as plain values.

The one rule: whatever the text holds, it gives plain values or a BadDocument, and never more than the text is long.
"""

from typing import Any, Final

import yaml

from agent.errors import BadDocument

LONGEST: Final = 65_536
"""Characters; the settings of a component have some hundreds, and a whole ConfigMap of YAML takes seconds to read."""


def plain_yaml(text: str, place: str) -> Any:
    """The YAML as plain values. An alias is refused, for a few of them can stand for more than any memory holds; a tag
    can make the reader of values fail in any way. Raises BadDocument with the place.

    libyaml's loader ends at a thousand levels; the one in Python takes hours for LONGEST brackets.
    """
    if len(text) > LONGEST:
        raise BadDocument(f"has {len(text)} characters, at most {LONGEST} are read", place=place)
    try:
        has_alias = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.CSafeLoader))
        found = None if has_alias else yaml.load(text, Loader=yaml.CSafeLoader)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise BadDocument(f"no YAML that can be read: {type(error).__name__}: {said}", place=place) from error
    if has_alias:
        raise BadDocument("has an alias (*name)", place=place, hint="write the values out")
    return found
