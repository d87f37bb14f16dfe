"""Answers of the API server as errors of the agent: which right is missing, what is too large, what may be retried.

The one rule: of a body only a Status' own message is shown, cut short; headers and data are never shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from agent.adapters.kube.resources import Resource
from agent.errors import AgentError, Conflict, Refused, Unavailable

MESSAGE_LIMIT: Final = 300
"""Characters of a server's message that are shown; a validation message may quote a whole object."""
_TOO_LARGE: Final = ("request is too large", "ResourceExhausted", "larger than max")
"""etcd's own limit reaches the client as a 500 with one of these; asking again cannot help."""


class NotFound(Refused):
    """404: no such object, namespace or kind."""


class Unauthorised(Refused):
    """401, also with the credentials read anew."""


class Gone(Unavailable):
    """410: the resourceVersion or the continue token is too old; list again."""


class Untrusted(Unavailable):
    """TLS failed: the server's certificate is not the one the CA stands for."""


class Throttled(Unavailable):
    """429; `retry_after` is what the server asks for, seconds."""

    def __init__(self, message: str, retry_after: float, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Call:
    """One request in RBAC's words."""

    verb: str
    """get, list, watch, create, update, patch or delete."""
    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def method(self) -> str:
        """The HTTP method of the verb."""
        return {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}.get(self.verb, "GET")

    @property
    def path(self) -> str:
        """Where the request goes; a create goes to the collection."""
        return self.resource.path(self.namespace, "" if self.verb == "create" else self.name)

    def __str__(self) -> str:
        of = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource.plural}{' ' + of if of else ''}"

    @property
    def right(self) -> str:
        """The right it takes, as a Role or ClusterRole would grant it."""
        group = self.resource.group
        scope = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        scope = scope if self.resource.namespaced else "cluster-wide"
        return f'verb {self.verb} on {self.resource.plural} (apiGroups ["{group}"]) {scope}'


def error_of(call: Call, status: int, body: bytes, headers: Mapping[str, str]) -> AgentError:
    """The error that an answer other than 2xx stands for; the caller raises it."""
    said = message_of(body)
    text = f"{call}: {status}{' ' + said if said else ''}"
    match status:
        case 401:
            return Unauthorised(text, hint="the API server does not accept these credentials")
        case 403 if "being terminated" in said:
            return Refused(text, hint="the namespace is being deleted")
        case 403:
            return Refused(text, hint=f"grant {call.right}")
        case 404:
            return NotFound(text)
        case 409:
            return Conflict(text)
        case 410:
            return Gone(text)
        case 413:
            return Refused(text, hint="cut the document to its budget")
        case 429:
            return Throttled(text, retry_after(headers) or 1.0)
        case 408:
            return Unavailable(text)
        case _ if status >= 500:
            if any(sign in said for sign in _TOO_LARGE):
                return Refused(text, hint="cut the document to its budget")
            return Unavailable(text)
        case _:
            return Refused(text)


def message_of(body: bytes) -> str:
    """The message of a Status, cut; empty for any other body, which may be anything."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return ""
    message = str(status.get("message") or status.get("reason") or "")
    return message if len(message) <= MESSAGE_LIMIT else f"{message[:MESSAGE_LIMIT]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header; None when there is none or it is a date."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < 3600 else None
