"""A Kubernetes API of the tests' own: etcd and kube-apiserver with RBAC, no scheduler, no kubelet.

The one rule: rights are real. Only the tester is an administrator (by its token); everybody else has what a Role
gives, whether a named user (token made at start) or a service account (token asked for from the server).
"""

import base64
import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from services import certificates
from services.processes import Process, ServiceFailedError, free_ports, wait_until

START_S = 60.0
REQUEST_S = 10.0
KUBECTL_S = 60.0
ADMIN = "tester"
NAMESPACES = ("mindx-dl", "volcano-system")
CRD = "podgroups.scheduling.volcano.sh"
ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said."""

    status: int
    """HTTP status."""
    body: Any
    """Decoded JSON, or the text when it is none."""

    @property
    def reason(self) -> str:
        """The `reason` of a Status, for instance AlreadyExists; empty for another object."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True, slots=True)
class KubeEndpoint:
    """How a client reaches an API server, and as whom."""

    kubeconfig: Path
    server: str
    """`https://host:port`."""
    ca: Path | None = None
    """What the client trusts, PEM; None: what the machine trusts."""
    token: str = ""
    certificate: Path | None = None
    """A client certificate, where that is how the user is known."""
    key: Path | None = None

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> Answer:
        """One HTTPS request; any status is an answer. Raises OSError when there is none in time."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, method=method)
        request.add_header("Content-Type", content_type)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:
                return Answer(response.status, _decoded(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _decoded(error.read()))


class Kube:
    """etcd and kube-apiserver on 127.0.0.1. A context manager, as Kafka is.

    `etcd` and `apiserver` are processes of their own, to be paused, killed and started again by a test.
    """

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        *,
        users: tuple[str, ...] = (),
        namespaces: tuple[str, ...] = NAMESPACES,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._binaries = binaries
        self._folder = folder
        self._tokens = {user: f"token-of-{user}" for user in (ADMIN, *users)}
        self._namespaces = namespaces
        client, peer, self._port = free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        self.etcd = Process(
            "etcd",
            [
                str(binaries / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={self._etcd_url}",
                f"--advertise-client-urls={self._etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
            ],
            folder / "etcd.log",
        )
        self.apiserver = Process(
            "kube-apiserver",
            [
                str(binaries / "kube-apiserver"),
                f"--etcd-servers={self._etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self._port}",
                # The Service `kubernetes` would get the loopback address as its endpoint, which is not allowed there.
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={folder / 'tls' / 'kube-apiserver.crt'}",
                f"--tls-private-key-file={folder / 'tls' / 'kube-apiserver.key'}",
                f"--client-ca-file={folder / 'tls' / 'authority.crt'}",
                f"--service-account-key-file={folder / 'tls' / 'accounts.pub'}",
                f"--service-account-signing-key-file={folder / 'tls' / 'accounts.key'}",
                f"--service-account-issuer={ISSUER}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                # As every cluster has it: else no object with a privileged pod is taken, and the link probe needs one.
                "--allow-privileged=true",
                "--service-cluster-ip-range=10.0.0.0/24",
                # Nobody makes the `default` account of a namespace here, so this one would refuse every pod.
                "--disable-admission-plugins=ServiceAccount",
                *arguments,
            ],
            folder / "kube-apiserver.log",
        )

    def __enter__(self) -> "Kube":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def endpoint(self) -> KubeEndpoint:
        """As the administrator."""
        return self.user(ADMIN)

    def user(self, name: str) -> KubeEndpoint:
        """As one of the named users; without a Role it may do nothing. Raises KeyError."""
        return self._endpoint(name, self._tokens[name])

    def service_account(self, namespace: str, name: str, *, seconds: int = 600) -> KubeEndpoint:
        """As that service account, with a new token of at least 600 s. Raises ServiceFailedError."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        answer = self.endpoint.request("POST", path, request)
        if answer.status != 201:
            raise ServiceFailedError(f"no token for {namespace}/{name}: {answer.body}")
        return self._endpoint(f"{namespace}.{name}", answer.body["status"]["token"])

    def foreign_ca(self) -> Path:
        """An authority that this server's certificate is not from."""
        return certificates.authority(self._folder / "foreign", "foreign").certificate

    def start(self) -> None:
        """Start both, wait until `/readyz` says ok, apply the PodGroup CRD. Raises ServiceFailedError."""
        if not (self._folder / "tls").exists():
            self._make_credentials()
        if not self.etcd.running:
            self.start_etcd()
        self.start_apiserver()
        self._furnish()

    def start_etcd(self) -> None:
        """Start etcd on its data and wait until it is healthy."""
        self.etcd.start()
        self.etcd.wait_ready(lambda: _unhealthy(f"{self._etcd_url}/health"), seconds=START_S)

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait_ready(self._not_ready, seconds=START_S)

    def stop(self) -> None:
        """Stop both in order; the data stay."""
        self.apiserver.stop()
        self.etcd.stop()

    def kubectl(
        self, *arguments: str, stdin: str = "", at: KubeEndpoint | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl. Raises ServiceFailedError when it ends with another code than 0 and `check` is set."""
        command = [str(self._binaries / "kubectl"), f"--kubeconfig={(at or self.endpoint).kubeconfig}", *arguments]
        cache = f"--cache-dir={self._folder / 'kubectl'}"
        done = subprocess.run(
            [*command, cache], input=stdin, capture_output=True, text=True, timeout=KUBECTL_S, check=False
        )
        if check and done.returncode != 0:
            raise ServiceFailedError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done

    def compact(self) -> None:
        """Forget all older versions in etcd: after a restart of the API server, a watch from one of them gets 410."""
        revision = self._etcd("/v3/maintenance/status", {})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def _etcd(self, path: str, body: Mapping[str, object]) -> Any:
        request = urllib.request.Request(self._etcd_url + path, data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=REQUEST_S) as response:
            return json.load(response)

    def _endpoint(self, name: str, token: str) -> KubeEndpoint:
        authority = self._folder / "tls" / "authority.crt"
        server = f"https://127.0.0.1:{self._port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        }
        path = self._folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return KubeEndpoint(path, server, authority, token)

    def _make_credentials(self) -> None:
        partial = self._folder / "tls.new"
        certificates.authority(partial).server("kube-apiserver")
        certificates.rsa_pair(partial, "accounts")
        partial.rename(self._folder / "tls")
        rows = [
            f'{token},{user},{user},"{"system:masters" if user == ADMIN else ""}"'
            for user, token in self._tokens.items()
        ]
        (self._folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _not_ready(self) -> str:
        try:
            answer = self.endpoint.request("GET", "/readyz")
        except OSError as error:
            return str(error)
        return "" if answer.status == 200 else f"{answer.status}: {answer.body}"

    def _furnish(self) -> None:
        for namespace in self._namespaces:
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self._apply("/api/v1/namespaces", made)
        crd = yaml.safe_load((Path(__file__).parent / "kube" / "podgroup-crd.yaml").read_text())
        self._apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        listing = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
        wait_until("PodGroups served", lambda: self._served(listing), seconds=START_S)

    def _apply(self, path: str, document: object) -> None:
        answer = self.endpoint.request("POST", path, document)
        if answer.status not in (201, 409):
            raise ServiceFailedError(f"{path}: {answer.status}: {answer.body}")

    def _served(self, path: str) -> str:
        answer = self.endpoint.request("GET", path)
        return "" if answer.status == 200 else f"{answer.status}"


def endpoint_from(kubeconfig: Path, folder: Path) -> KubeEndpoint:
    """The endpoint of a kubeconfig's current context; what it holds inline is written to files in `folder`.

    Raises ValueError when it names no server, or when its user is known in a way that this does not read
    (a token, a token file and a client certificate are read).
    """
    config = yaml.safe_load(kubeconfig.read_text())

    def named(kind: str, name: str) -> Mapping[str, Any]:
        found = [entry[kind] for entry in config.get(f"{kind}s", []) if entry["name"] == name]
        if not found:
            raise ValueError(f"{kubeconfig}: no {kind} {name!r}")
        entry: Mapping[str, Any] = found[0]
        return entry

    def file_of(entry: Mapping[str, Any], key: str) -> Path | None:
        if inline := entry.get(f"{key}-data"):
            path = folder / key
            path.write_bytes(base64.b64decode(inline))
            path.chmod(0o600)
            return path
        return kubeconfig.parent / entry[key] if entry.get(key) else None

    context = named("context", str(config.get("current-context", "")))
    cluster, user = named("cluster", context["cluster"]), named("user", context["user"])
    token = str(user.get("token", ""))
    if not token and (path := user.get("tokenFile")):
        token = (kubeconfig.parent / path).read_text().strip()
    certificate = file_of(user, "client-certificate")
    if not token and certificate is None:
        raise ValueError(f"{kubeconfig}: user {context['user']!r} has neither a token nor a client certificate")
    ca, key = file_of(cluster, "certificate-authority"), file_of(user, "client-key")
    return KubeEndpoint(kubeconfig, cluster["server"].rstrip("/"), ca, token, certificate, key)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _unhealthy(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=REQUEST_S) as response:
            said = json.load(response)
    except OSError as error:
        return str(error)
    return "" if said.get("health") == "true" else str(said)
