"""A ConfigMap as the Kubernetes object it is, and the limits the API server would hold it to.

For every store that keeps or reads objects itself (memory, folder, cluster files). The one rule: reading an object
and writing it again loses nothing, and what Kubernetes would refuse is refused here too.
"""

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from agent.errors import BadDocument, Conflict, Refused
from agent.ports import ConfigMap

DATA_LIMIT: Final = 1_048_576
"""Bytes of all data values together (kubernetes core.MaxSecretSize, applied by ValidateConfigMap)."""

Key = tuple[str, str]
"""Namespace and name."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_OF_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "ownerReferences",
        "selfLink",
    }
)
_KNOWN_METADATA: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "labels", "annotations", "managedFields"}
)
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def is_label(text: str) -> bool:
    """Whether it is a DNS-1123 label, as a namespace must be."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether it is a DNS-1123 subdomain of at most 253 characters, as an object's name must be."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def check_key(namespace: str, name: str) -> Key:
    """The key, when both parts are names Kubernetes would take; so none can lead out of a folder.

    Raises Refused.
    """
    if not is_label(namespace):
        raise Refused(f"namespace {namespace!r} is no DNS-1123 label")
    if not is_subdomain(name):
        raise Refused(f"ConfigMap name {name!r} is no DNS-1123 subdomain")
    return namespace, name


def check(document: ConfigMap) -> None:
    """Hold a document to what the API server validates: names, data keys, total size of the values.

    Raises Refused.
    """
    check_key(document.namespace, document.name)
    where = f"{document.namespace}/{document.name}"
    size = 0
    for key, value in document.data.items():
        if _DATA_KEY.fullmatch(key) is None or key == "." or key.startswith(".."):
            raise Refused(f"{where}: data key {key!r} is not a valid ConfigMap key")
        try:
            size += len(value.encode())
        except UnicodeEncodeError as error:
            raise Refused(f"{where}: the value of {key!r} is not valid Unicode text") from error
    binary = document.extra.get("binaryData") or {}
    for key, value in binary.items():
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError) as error:
            raise Refused(f"{where}: binaryData {key!r} is not base64") from error
    if size > DATA_LIMIT:
        raise Refused(
            f"{where}: {size} bytes of data, at most {DATA_LIMIT} are stored", hint="cut the document to its budget"
        )


def same_content(one: ConfigMap, other: ConfigMap) -> bool:
    """Whether a write would change nothing: data, labels, annotations and the rest are equal."""
    return (
        one.data == other.data
        and one.labels == other.labels
        and one.annotations == other.annotations
        and _comparable(one.extra) == _comparable(other.extra)
    )


def _comparable(extra: Mapping[str, Any]) -> dict[str, Any]:
    # The server sets the creation time and keeps it whatever a writer sends.
    return {key: value for key, value in extra.items() if key != "creationTimestamp" and value not in (None, {}, [])}


def check_swap(document: ConfigMap, live: ConfigMap | None) -> None:
    """Compare before the swap: the live object is the one `document` was made from.

    Raises Conflict (exists already, gone, another version, another object of that name) and Refused (the live
    object is immutable).
    """
    where = f"{document.namespace}/{document.name}"
    if live is None:
        if document.resource_version:
            raise Conflict(f"{where}: gone, version {document.resource_version} was expected")
        return
    if not document.resource_version:
        raise Conflict(f"{where}: exists already, at version {live.resource_version}")
    if document.resource_version != live.resource_version:
        raise Conflict(f"{where}: at version {live.resource_version}, {document.resource_version} was expected")
    if document.uid and live.uid and document.uid != live.uid:
        raise Conflict(f"{where}: another object of that name, uid {live.uid} and not {document.uid}")
    if live.extra.get("immutable") is True and not (
        document.extra.get("immutable") is True
        and document.data == live.data
        and document.extra.get("binaryData") == live.extra.get("binaryData")
    ):
        raise Refused(f"{where}: is immutable")


def stamped(document: ConfigMap, live: ConfigMap | None, version: str, manager: str) -> ConfigMap:
    """The document as stored: with its version, its uid and its writers, `manager` the last of them if new and named.

    A created object keeps the uid and writers it brings along, which is how an overlay copies one up; one that
    brings none gets a uid made of its name and version, so that a replay gives the same bytes again.
    """
    before = document.managers if live is None else live.managers
    uid = document.uid if live is None else live.uid
    extra = dict(document.extra)
    if live is not None and "creationTimestamp" in live.extra:
        extra["creationTimestamp"] = live.extra["creationTimestamp"]
    return replace(
        document,
        data=dict(document.data),
        labels=dict(document.labels),
        annotations=dict(document.annotations),
        resource_version=version,
        uid=uid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{document.namespace}/{document.name}/{version}")),
        managers=before if not manager or manager in before else (*before, manager),
        extra=extra,
    )


def from_object(item: Mapping[str, Any], place: str, namespace: str = "") -> ConfigMap:
    """Read a ConfigMap object. `namespace` is used when the object names none.

    Without a resourceVersion (an object written by hand) the version is a digest of the object, so that
    compare-and-swap holds for it too.

    Raises BadDocument naming `place`, the JSON pointer and the reason.
    """
    if item.get("kind") != "ConfigMap":
        raise BadDocument(f"/kind is {item.get('kind')!r}, not ConfigMap", place=place)
    _check_writable(item, place)
    meta = item.get("metadata")
    if not isinstance(meta, Mapping):
        raise BadDocument("/metadata is missing or no object", place=place)
    extra = {key: value for key, value in meta.items() if key in _OF_METADATA}
    extra |= {k: v for k, v in item.items() if k not in {"apiVersion", "kind", "metadata", "data"}}
    strange = {k: v for k, v in meta.items() if k not in _OF_METADATA and k not in _KNOWN_METADATA}
    if strange:
        extra["metadata"] = strange
    binary = extra.get("binaryData")
    if binary is not None:
        _texts(item, "binaryData", place, "")
    version = _text(meta, "resourceVersion", place)
    return ConfigMap(
        namespace=_text(meta, "namespace", place) or namespace,
        name=_text(meta, "name", place, needed=True),
        data=_texts(item, "data", place, ""),
        labels=_texts(meta, "labels", place, "/metadata"),
        annotations=_texts(meta, "annotations", place, "/metadata"),
        resource_version=version or f"digest-{_digest(item)}",
        uid=_text(meta, "uid", place),
        managers=_managers(meta, place),
        extra=extra,
    )


def to_object(document: ConfigMap, managed_fields: tuple[Mapping[str, Any], ...] = ()) -> dict[str, Any]:
    """The Kubernetes object. `managed_fields` are entries as last stored; writers without one get a bare entry."""
    meta: dict[str, Any] = {"name": document.name, "namespace": document.namespace}
    item: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    for key, value in document.extra.items():
        if key == "metadata":
            meta |= value
        elif key in _OF_METADATA:
            meta[key] = value
        else:
            item[key] = value
    if document.data:
        item["data"] = dict(document.data)
    if document.labels:
        meta["labels"] = dict(document.labels)
    if document.annotations:
        meta["annotations"] = dict(document.annotations)
    if document.uid:
        meta["uid"] = document.uid
    if document.resource_version:
        meta["resourceVersion"] = document.resource_version
    known = {str(entry.get("manager")) for entry in managed_fields}
    fields = [*managed_fields, *({"manager": m, "operation": "Update"} for m in document.managers if m not in known)]
    if fields:
        meta["managedFields"] = fields
    return item


def to_bytes(item: Mapping[str, Any]) -> bytes:
    """An object as `kubectl get -o json` prints it: sorted keys, four spaces, Go's escapes, a last newline.

    Raises Refused when it holds what JSON cannot.
    """
    try:
        text = json.dumps(item, indent=4, sort_keys=True, ensure_ascii=False, allow_nan=False)
        for sign, escape in _HTML.items():
            text = text.replace(sign, escape)
        return text.encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"the object cannot be written as JSON: {error}") from error


def _check_writable(item: Mapping[str, Any], place: str) -> None:
    """Refuse what no API object can hold and nobody could write back: more than 254 levels, an integer beyond 64
    bits, half a surrogate pair. Raises BadDocument.
    """
    try:
        orjson.dumps(item, default=str)
    except TypeError as error:
        raise BadDocument(f"cannot be written as JSON: {error}", place=place) from error


def _digest(item: Mapping[str, Any]) -> str:
    text = json.dumps(item, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _text(of: Mapping[str, Any], key: str, place: str, *, needed: bool = False) -> str:
    value = of.get(key)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise BadDocument(f"/metadata/{key} is {'missing' if value is None else 'no text'}", place=place)
    return value


def _texts(of: Mapping[str, Any], key: str, place: str, pointer: str) -> dict[str, str]:
    value = of.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadDocument(f"{pointer}/{key} is no object", place=place)
    for name, text in value.items():
        if not isinstance(text, str):
            raise BadDocument(f"{pointer}/{key}/{name} is no text", place=place, hint="quote the value")
    return dict(value)


def _managers(meta: Mapping[str, Any], place: str) -> tuple[str, ...]:
    entries = meta.get("managedFields") or []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise BadDocument("/metadata/managedFields is no list of objects", place=place)
    return tuple(dict.fromkeys(str(entry["manager"]) for entry in entries if entry.get("manager")))
