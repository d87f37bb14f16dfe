"""The cluster as files: the contract, the forms people write, and what one bad document costs."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from contracts.jobview import NODE, POD, JobViewContract
from contracts.store import next_change, watching

from agent.adapters.clusterfiles import ClusterFiles
from agent.errors import BadDocument, CannotRun, Refused
from agent.ports import JobView

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: train}\ndata: {v: '%s'}\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class FilesWorld:
    def __init__(self, root: Path, suffix: str) -> None:
        self._root = root
        self._suffix = suffix
        self.view: JobView = ClusterFiles(root)

    def _path(self, item: Mapping[str, Any]) -> Path:
        return self._root / "objects" / f"{item['kind']}-{item['metadata']['name']}{self._suffix}"

    async def apply(self, item: Mapping[str, Any]) -> None:
        text = orjson.dumps(item).decode() if self._suffix == ".json" else yaml.safe_dump(item)
        await asyncio.to_thread(write, self._path(item), text)

    async def remove(self, item: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._path(item).unlink)

    async def spoil(self) -> None:
        await asyncio.to_thread(write, self._root / f"bad{self._suffix}", "{")


class TestClusterFiles(JobViewContract):
    @pytest.fixture(params=[".yaml", ".json"])
    def world(self, tmp_path: Path, request: pytest.FixtureRequest) -> FilesWorld:
        return FilesWorld(tmp_path, request.param)

    async def test_a_place_that_does_not_exist_cannot_be_run_on(self, tmp_path: Path) -> None:
        with pytest.raises(CannotRun, match="nowhere"):
            await ClusterFiles(tmp_path / "nowhere").snapshot()

    async def test_a_single_file_needs_no_ending(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "dump", yaml.safe_dump_all([POD, NODE]))
        objects, findings = await ClusterFiles(tmp_path / "dump").snapshot()
        assert (list(objects), list(findings)) == ([POD, NODE], [])

    async def test_hidden_files_and_other_endings_are_left_alone(self, tmp_path: Path) -> None:
        for name in ("README.md", ".hidden.yaml", ".git/x.yaml", "x.json.bak"):
            await asyncio.to_thread(write, tmp_path / name, "{")
        await asyncio.to_thread(write, tmp_path / "deep" / "er" / "x.yml", yaml.safe_dump(NODE))
        objects, findings = await ClusterFiles(tmp_path).snapshot()
        assert (list(objects), list(findings)) == ([NODE], [])

    async def test_an_object_given_twice_counts_as_in_the_later_file_and_is_a_finding(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "a.yaml", CONFIG_MAP % ("x", "1"))
        await asyncio.to_thread(write, tmp_path / "b.yaml", CONFIG_MAP % ("x", "2"))
        objects, findings = await ClusterFiles(tmp_path).snapshot()
        assert [item["data"] for item in objects] == [{"v": "2"}]
        assert len(findings) == 1
        assert "a.yaml:1" in findings[0]
        assert "b.yaml:1" in findings[0]

    async def test_a_static_view_reads_once(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "a.yaml", CONFIG_MAP % ("x", "1"))
        files = ClusterFiles(tmp_path, static=True)
        assert await files.changed()
        first = await files.snapshot()
        await asyncio.to_thread(write, tmp_path / "b.yaml", CONFIG_MAP % ("y", "1"))
        assert not await files.changed()
        assert await files.snapshot() == first

    async def test_a_place_that_vanishes_is_a_change_and_then_cannot_be_run_on(self, tmp_path: Path) -> None:
        path = tmp_path / "dump.yaml"
        await asyncio.to_thread(write, path, yaml.safe_dump(NODE))
        files = ClusterFiles(path)
        await files.snapshot()
        await asyncio.to_thread(path.unlink)
        assert await files.changed()
        with pytest.raises(CannotRun):
            await files.snapshot()

    async def test_a_file_over_the_limit_is_a_finding(self, tmp_path: Path) -> None:
        def grow() -> None:
            with (tmp_path / "big.json").open("wb") as file:
                file.truncate(64 * 1024 * 1024 + 1)

        await asyncio.to_thread(grow)
        objects, findings = await ClusterFiles(tmp_path).snapshot()
        assert list(objects) == []
        assert "big.json: 67108865 bytes" in findings[0]

    async def test_a_name_that_is_no_utf_8_is_told_as_far_as_it_can_be(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / os.fsdecode(b"\xff.yaml"), "kind: [\n")
        _, findings = await ClusterFiles(tmp_path).snapshot()
        assert "\ufffd.yaml:2: no YAML" in findings[0]
        assert findings[0].encode()

    async def test_its_config_maps_are_a_store_that_is_only_read(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "a.yaml", CONFIG_MAP % ("x", "1") + "---\n" + yaml.safe_dump(POD))
        await asyncio.to_thread(write, tmp_path / "b.yaml", "kind: ConfigMap\nmetadata: {name: bare}")
        store = ClusterFiles(tmp_path).configmaps()
        document = await store.get("train", "x")
        assert document is not None
        assert (document.data, document.resource_version[:7]) == ({"v": "1"}, "digest-")
        assert await store.get("train", "none") is None
        assert [(d.namespace, d.name) for d in await store.list()] == [("default", "bare"), ("train", "x")]
        with pytest.raises(Refused):
            await store.put(document)
        with pytest.raises(Refused):
            await store.delete("train", "x", document.resource_version)

    async def test_a_config_map_that_cannot_be_read_is_named_and_costs_only_itself(self, tmp_path: Path) -> None:
        text = "kind: ConfigMap\nmetadata: {name: bad, namespace: train}\ndata: {TIMEOUT: 20}\n---\n"
        await asyncio.to_thread(write, tmp_path / "a.yaml", text + CONFIG_MAP % ("x", "1"))
        files = ClusterFiles(tmp_path)
        objects, findings = await files.snapshot()
        assert [item["metadata"]["name"] for item in objects] == ["bad", "x"]
        assert [finding.split(": ", 1)[1] for finding in findings] == ["/data/TIMEOUT is no text (quote the value)"]
        store = files.configmaps()
        assert [document.name for document in await store.list()] == ["x"]
        with pytest.raises(BadDocument, match=r"a\.yaml:1: /data/TIMEOUT"):
            await store.get("train", "bad")

    async def test_its_config_maps_can_be_watched(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "a.yaml", CONFIG_MAP % ("x", "1"))
        async with watching(ClusterFiles(tmp_path).configmaps(interval=0.01)) as changes:
            assert await next_change(changes) == ("set", "x", "1")
            await asyncio.to_thread(write, tmp_path / "a.yaml", CONFIG_MAP % ("x", "2"))
            assert await next_change(changes) == ("set", "x", "2")
            await asyncio.to_thread((tmp_path / "a.yaml").unlink)
            assert await next_change(changes) == ("gone", "x", "2")
