"""Where the API server is and how to be let in: kubeconfig, or the pod's own service account.

The one rule: a token lives on disk, not here; it is read again when its file changes and when the server refuses it,
so that a rotated or expired one never needs a restart.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from agent.errors import AgentError, CannotRun

LOOK_AGAIN_S: Final = 10.0
"""How often a token's file is looked at; the kubelet replaces it when a fifth of its life is left, which is minutes."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """How to reach the API server. Without a kubeconfig: as a pod, by its service account."""

    kubeconfig: Path | None = None
    context: str = ""
    """Empty: the kubeconfig's current one."""
    request_seconds: float = 10.0
    """The longest a request may take, answer and retries within it included."""
    connect_seconds: float = 3.0
    """The longest to set up one connection."""
    user_agent: str = "fault-agent"
    service_account: Path = SERVICE_ACCOUNT
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


class Token:
    """The value of the Authorization header, kept in step with the files it comes from."""

    def __init__(
        self, value: str, read: Callable[[], str], files: Sequence[Path], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._value = value
        self._read = read
        self._files = tuple(files)
        self._clock = clock
        self._looked = clock()
        self._mark: object = None
        self._reading = asyncio.Lock()

    async def current(self) -> str:
        """The header's value; empty when the credentials are a client certificate. Never raises."""
        if self._files and self._clock() - self._looked >= LOOK_AGAIN_S:
            async with self._reading:
                if self._clock() - self._looked >= LOOK_AGAIN_S:
                    self._looked = self._clock()
                    await asyncio.to_thread(self._look)
        return self._value

    async def again(self, refused: str) -> bool:
        """Read it anew because `refused` was not accepted; whether there is another one now."""
        async with self._reading:
            if self._value == refused:
                await asyncio.to_thread(self._reread)
        return self._value != refused

    def _look(self) -> None:
        mark = _mark(self._files)
        if mark != self._mark:
            self._mark = mark
            self._reread()

    def _reread(self) -> None:
        try:
            self._value = self._read()
        except (AgentError, OSError):
            # Half-way through a rotation: the old one is tried on, and the server will say if it is no use.
            return


@dataclass(frozen=True, slots=True)
class Access:
    """An open way to the API server."""

    api: Any
    """The library's ApiClient: TLS, client certificate, proxy and connection pool."""
    host: str
    token: Token
    ca: str
    """Where the CA comes from, for error messages."""


async def open_access(settings: KubeSettings) -> Access:
    """Read the configuration and make a client of it; nothing is sent yet.

    Raises CannotRun naming the file and what is wrong with it.
    """
    read = _in_cluster if settings.kubeconfig is None else _from_kubeconfig
    library, configuration, files = await asyncio.to_thread(read, settings)
    try:
        api = library.ApiClient(configuration)
    except (OSError, ssl.SSLError) as error:
        raise CannotRun(
            f"the CA or client certificate of the API server cannot be used: {type(error).__name__}",
            hint=f"look at {configuration.ssl_ca_cert or settings.kubeconfig}",
        ) from error
    api.user_agent = settings.user_agent

    def reread() -> str:
        return _bearer(read(settings)[1])

    token = Token(_bearer(configuration), reread, files)
    ca = str(settings.kubeconfig or settings.service_account / "ca.crt")
    return Access(api, str(configuration.host).rstrip("/"), token, ca)


def _bearer(configuration: Any) -> str:
    return str(configuration.api_key.get("BearerToken") or "")


def _library() -> tuple[Any, Any]:
    # Imported where it is needed: its models take seconds and tens of megabytes that no other command should pay.
    import kubernetes_asyncio.client
    import kubernetes_asyncio.config

    return kubernetes_asyncio.client, kubernetes_asyncio.config


def _in_cluster(settings: KubeSettings) -> tuple[Any, Any, Sequence[Path]]:
    host, port = settings.environ.get(HOST, ""), settings.environ.get(PORT, "")
    if not host or not port:
        raise CannotRun(
            "no kubeconfig is given and this is no pod of a cluster",
            hint=f"name a kubeconfig in the settings; in a pod {HOST} and {PORT} are set",
        )
    token, ca = settings.service_account / "token", settings.service_account / "ca.crt"
    if not ca.is_file():
        raise CannotRun(f"{ca}: no such file", hint="the pod needs automountServiceAccountToken")
    client, _ = _library()
    configuration = client.Configuration()
    configuration.host = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    configuration.ssl_ca_cert = str(ca)
    configuration.api_key["BearerToken"] = f"Bearer {_token_in(token)}"
    return client, configuration, (token,)


def _token_in(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path}: cannot be read", hint="the pod needs automountServiceAccountToken") from error
    if not text:
        raise CannotRun(f"{path}: is empty")
    return text


def _from_kubeconfig(settings: KubeSettings) -> tuple[Any, Any, Sequence[Path]]:
    path = settings.kubeconfig or Path()
    plugin = _check_kubeconfig(path, settings.context)
    client, config = _library()
    configuration = client.Configuration()
    loading = config.load_kube_config(
        config_file=str(path),
        context=settings.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    try:
        if plugin:
            asyncio.run(loading)
        else:
            _finish(loading)
    except Exception as error:
        # Not chained: the library's messages quote whole entries, tokens included.
        raise CannotRun(
            f"{path}: the credentials cannot be loaded: {type(error).__name__}",
            hint="try it with: kubectl --kubeconfig … version",
        ) from None
    finally:
        loading.close()
    return client, configuration, (path,)


def _finish(loading: Coroutine[Any, Any, Any]) -> None:
    """What the library calls async only reads files here: one step takes it to its end, in this thread."""
    with suppress(StopIteration):
        loading.send(None)
        raise RuntimeError("the library waits for something")


def _check_kubeconfig(path: Path, context: str) -> bool:
    """Say what the library would say only with an assertion, or with secrets in the message.

    Returns whether the credentials come from a plugin. Raises CannotRun.
    """
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise CannotRun(f"{path}: no such kubeconfig", hint="name it in the settings or by KUBECONFIG") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path}: the kubeconfig cannot be read: {type(error).__name__}") from error
    try:
        tree = yaml.safe_load(text)
    except Exception as error:  # a tag that no value fits (!!timestamp x) fails in any way
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise CannotRun(f"{path}{f':{line + 1}' if line is not None else ''}: is no YAML") from None
    if not isinstance(tree, dict):
        raise CannotRun(f"{path}: is no kubeconfig")
    chosen = context or str(tree.get("current-context") or "")
    if not chosen:
        raise CannotRun(f"{path}: names no current-context", hint="set the context in the settings")
    found = _named(tree, "contexts", chosen)
    if found is None:
        known = ", ".join(sorted(str(entry.get("name")) for entry in _entries(tree, "contexts"))) or "none"
        raise CannotRun(f"{path}: has no context {chosen!r}", hint=f"there are: {known}")
    inner = found.get("context")
    cluster = str(inner.get("cluster") or "") if isinstance(inner, dict) else ""
    entry = _named(tree, "clusters", cluster)
    body = entry.get("cluster") if entry is not None else None
    if not isinstance(body, dict) or not isinstance(body.get("server"), str):
        raise CannotRun(f"{path}: context {chosen!r} names cluster {cluster!r}, which has no server")
    known_user = _named(tree, "users", str(inner.get("user"))) if isinstance(inner, dict) else None
    user = known_user.get("user") if known_user is not None else None
    return isinstance(user, dict) and ("exec" in user or "auth-provider" in user)


def _entries(tree: Mapping[str, Any], of: str) -> list[Mapping[str, Any]]:
    entries = tree.get(of)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _named(tree: Mapping[str, Any], of: str, name: str) -> Mapping[str, Any] | None:
    return next((entry for entry in _entries(tree, of) if entry.get("name") == name), None)


def _mark(files: Sequence[Path]) -> object:
    marks = []
    for path in files:
        try:
            status = path.stat()
            marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            marks.append((0, 0, 0))
    return tuple(marks)
