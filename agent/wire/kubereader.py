"""Reads fields of one Kubernetes object.

The one rule: a field of the wrong type raises BadDocument naming the object and the field, and nothing else.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from agent.domain.vocab import Millis
from agent.errors import BadDocument

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def bad_name(kind: str, namespace: str, name: str) -> str:
    """Why Kubernetes could have no object of that name (DNS-1123); empty when it could. A Node has no namespace."""
    if len(name) > 253 or _SUBDOMAIN.fullmatch(name) is None:
        return f"metadata.name: {name[:60]!r} is no DNS-1123 subdomain"
    if kind != "Node" and _LABEL.fullmatch(namespace) is None:
        return f"metadata.namespace: {namespace[:60]!r} is no DNS-1123 label"
    return ""


class ObjectReader:
    """One object with its name, so that each complaint says whose field is wrong."""

    def __init__(self, kind: str, obj: Mapping[str, Any]) -> None:
        self.kind = kind
        self.obj = obj
        self.who = kind
        self.meta = self.mapping(obj, "metadata", "metadata")
        self.name = self.text(self.meta, "name", "metadata.name")
        if not self.name:
            self.fail("metadata.name", "is missing")
        self.namespace = self.text(self.meta, "namespace", "metadata.namespace")
        if kind != "Node":
            self.namespace = self.namespace or "default"
        if bad := bad_name(kind, self.namespace, self.name):
            self.fail(*bad.split(": ", 1))
        self.who = f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"
        self.uid = self.text(self.meta, "uid", "metadata.uid")
        self.labels = self.texts(self.meta, "labels", "metadata.labels")
        self.annotations = self.texts(self.meta, "annotations", "metadata.annotations")

    def fail(self, place: str, reason: str, hint: str = "") -> NoReturn:
        """Raise BadDocument for that field of this object."""
        raise BadDocument(reason, place=f"{self.who}: {place}", hint=hint)

    def mapping(self, parent: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
        """The mapping under `key`; empty when absent."""
        value = parent.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(place, "is no mapping")
        return value

    def items(self, parent: Mapping[str, Any], key: str, place: str) -> list[Mapping[str, Any]]:
        """The mappings listed under `key`; empty when absent."""
        value = parent.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.fail(place, "is no list")
        for number, item in enumerate(value):
            if not isinstance(item, Mapping):
                self.fail(f"{place}[{number}]", "is no mapping")
        return value

    def text(self, parent: Mapping[str, Any], key: str, place: str) -> str:
        """The text under `key`; empty when absent."""
        value = parent.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.fail(place, f"is no text but {type(value).__name__}", hint="quote the value in YAML")
        return value

    def texts(self, parent: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
        """A mapping of texts; empty when absent."""
        value = self.mapping(parent, key, place)
        return {str(name): self.text(value, name, f'{place}["{name}"]') for name in value}

    def integer(self, parent: Mapping[str, Any], key: str, place: str) -> int:
        """The integer of 64 bits under `key`; 0 when absent."""
        value = parent.get(key)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(place, "is no integer")
        if not -(2**63) <= value < 2**63:
            self.fail(place, "does not fit in 64 bits")
        return value

    def time(self, parent: Mapping[str, Any], key: str, place: str) -> Millis:
        """The RFC 3339 time under `key` in Unix ms; 0 when absent."""
        value = parent.get(key)
        if value is None:
            return Millis(0)
        try:
            # YAML readers turn an unquoted time into a datetime
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return Millis(int(aware.timestamp() * 1000))
        except (TypeError, ValueError, OverflowError):
            shown = repr(value[:60]) if isinstance(value, str) else type(value).__name__
            self.fail(place, f"{shown} is no RFC 3339 time")

    def json(self, place: str, text: str) -> Any:
        """Read a JSON text that stands in a field; a text in it that is no Unicode is a complaint too."""
        try:
            value = json.loads(text)
            if "\\u" in text:
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as bad:
            self.fail(place, f"is no JSON: {bad}")
        return value

    def annotation_place(self, key: str) -> str:
        """How a complaint names an annotation."""
        return f'metadata.annotations["{key}"]'
