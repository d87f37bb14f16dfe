"""Kubeconfig and service account: what is wrong is said, secrets are not, and tokens are read again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from scriptedkube import kubeconfig

from agent.adapters.kube.access import KubeSettings, Token, open_access
from agent.errors import CannotRun

SECRET = "s3cr3t-t0k3n"


def settings(path: Path, context: str = "") -> KubeSettings:
    return KubeSettings(path, context)


async def test_a_kubeconfig_gives_the_server_and_the_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://10.0.0.1:6443/", {"token": SECRET})
    access = await open_access(settings(path))
    try:
        assert access.host == "https://10.0.0.1:6443"
        assert await access.token.current() == f"Bearer {SECRET}"
    finally:
        await access.api.close()


async def test_a_kubeconfig_without_user_gives_no_token(tmp_path: Path) -> None:
    access = await open_access(settings(kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {})))
    try:
        assert await access.token.current() == ""
    finally:
        await access.api.close()


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    config: dict[str, Any] = {
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    }
    change(config)
    return json.dumps(config)


@pytest.mark.parametrize(
    ("text", "context", "says"),
    [
        pytest.param("{: s3cr3t-t0k3n", "", "is no YAML", id="no YAML"),
        pytest.param("users: !!timestamp s3cr3t-t0k3n", "", "is no YAML", id="a tag that the value does not fit"),
        pytest.param("- s3cr3t-t0k3n", "", "is no kubeconfig", id="a list"),
        pytest.param("", "", "is no kubeconfig", id="empty"),
        pytest.param(broken(lambda c: c.pop("current-context")), "", "no current-context", id="no context"),
        pytest.param(broken(lambda c: c.items()), "prod", "no context 'prod' (there are: test)", id="another context"),
        pytest.param(broken(lambda c: c.pop("clusters")), "", "which has no server", id="no clusters"),
        pytest.param(broken(lambda c: c["clusters"][0].pop("cluster")), "", "which has no server", id="half a cluster"),
        pytest.param(broken(lambda c: c.update(contexts="x")), "", "has no context", id="contexts is text"),
        pytest.param(
            broken(lambda c: c["clusters"][0]["cluster"].update({"certificate-authority": "/nowhere/ca"})),
            "",
            "cannot be loaded: ConfigException",
            id="no such CA file",
        ),
        pytest.param(
            broken(lambda c: c["users"][0]["user"].update({"auth-provider": {"name": "oidc", "s3cr3t-t0k3n": 1}})),
            "",
            "cannot be loaded",
            id="a provider without its configuration",
        ),
    ],
)
async def test_what_is_wrong_with_a_kubeconfig_is_said_without_its_secrets(
    text: str, context: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CannotRun) as caught:
        await open_access(settings(path, context))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


async def test_a_credential_plugin_is_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # The plugin is run by the library in a thread with a loop of its own, where waiting for it disturbs nobody.
    blocking: BlockBuster = request.getfixturevalue("_no_blocking_in_the_loop")
    blocking.deactivate()
    said = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": SECRET, "expirationTimestamp": "2099-01-01T00:00:00Z"},
    }
    (tmp_path / "said").write_text(json.dumps(said))
    plugin = {"exec": {"apiVersion": said["apiVersion"], "command": "cat", "args": [str(tmp_path / "said")]}}
    access = await open_access(settings(kubeconfig(tmp_path / "config", "http://127.0.0.1:1", plugin)))
    try:
        assert await access.token.current() == f"Bearer {SECRET}"
        (tmp_path / "said").write_text(json.dumps({**said, "status": {"token": "next"}}))
        assert await access.token.again(f"Bearer {SECRET}")
        assert await access.token.current() == "Bearer next"
    finally:
        await access.api.close()


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="no such kubeconfig"):
        await open_access(settings(tmp_path / "none"))


async def test_a_ca_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.pem")
    path.write_text(json.dumps(config))
    with pytest.raises(CannotRun, match=r"CA or client certificate .* cannot be used"):
        await open_access(settings(path))


class TestServiceAccount:
    @pytest.mark.parametrize(
        ("environ", "files", "says"),
        [
            pytest.param({}, ("token", "ca.crt"), "this is no pod", id="no pod"),
            pytest.param(
                {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": "443"}, (), "this is no pod", id="empty host"
            ),
            pytest.param(
                {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
                ("token",),
                "ca.crt: no such file",
                id="no CA",
            ),
            pytest.param(
                {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
                ("ca.crt",),
                "token: cannot be read",
                id="no token",
            ),
        ],
    )
    async def test_what_a_pod_lacks_is_said(
        self, environ: dict[str, str], files: tuple[str, ...], says: str, tmp_path: Path
    ) -> None:
        for name in files:
            (tmp_path / name).write_text("x")
        with pytest.raises(CannotRun, match=says):
            await open_access(KubeSettings(service_account=tmp_path, environ=environ))

    async def test_an_empty_token_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "ca.crt").write_text("x")
        (tmp_path / "token").write_text("\n")
        environ = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "443"}
        with pytest.raises(CannotRun, match="token: is empty"):
            await open_access(KubeSettings(service_account=tmp_path, environ=environ))

    def test_settings_do_not_show_the_environment(self) -> None:
        assert SECRET not in repr(KubeSettings(environ={"PASSWORD": SECRET}))


class TestToken:
    async def test_a_replaced_file_is_read_again_within_ten_seconds(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("one")
        now = [0.0]
        token = Token("one", path.read_text, (path,), lambda: now[0])
        path.write_text("another")
        assert await token.current() == "one"
        now[0] = 10.0
        assert await token.current() == "another"

    async def test_a_file_that_is_gone_for_a_moment_leaves_the_old_token(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        now = [0.0]
        token = Token("one", path.read_text, (path,), lambda: now[0])
        now[0] = 10.0
        assert await token.current() == "one"
        path.write_text("two")
        now[0] = 20.0
        assert await token.current() == "two"

    async def test_a_refused_token_is_read_again_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("two")
        token = Token("one", path.read_text, (path,), lambda: 0.0)
        assert await token.again("one")
        assert await token.current() == "two"

    async def test_a_refused_token_that_is_still_the_one_on_disk_is_no_other(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("one")
        token = Token("one", path.read_text, (path,), lambda: 0.0)
        assert not await token.again("one")

    async def test_who_was_refused_with_an_older_token_tries_the_present_one(self) -> None:
        def never() -> str:
            raise AssertionError

        token = Token("two", never, (), lambda: 0.0)
        assert await token.again("one")
