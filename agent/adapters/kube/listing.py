"""All objects of one kind as they are at one time, read in pages.

The one rule: a list is whole or an error, and nothing is watched: behind it nothing is left open.
"""

from collections.abc import AsyncGenerator
from typing import Any

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.errors import NotFound
from agent.adapters.kube.resources import Watched


async def listed(client: KubeClient, watched: Watched, page: int) -> AsyncGenerator[dict[str, Any], None]:
    """Each object with its kind, `page` at a time; of an optional kind that the server does not serve, none. Raises as
    `KubeClient.call` does, in the middle too: then what came before is no list.
    """
    resource = watched.resource
    selectors = {"labelSelector": watched.labels, "fieldSelector": watched.fields}
    token = ""
    while True:
        params = {"limit": str(page), "continue": token, **selectors}
        given = {name: text for name, text in params.items() if text}
        try:
            answer = await client.call("list", resource, watched.namespace, params=given)
        except NotFound:
            if watched.optional:
                return
            raise
        for item in answer.get("items") or ():
            # Items of a list do not name their kind.
            yield {"apiVersion": resource.api_version, **item, "kind": resource.kind}
        token = str((answer.get("metadata") or {}).get("continue") or "")
        if not token:
            return
