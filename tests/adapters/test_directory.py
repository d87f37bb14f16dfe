"""State in folders: the contracts, and what people see in the files."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contracts.cabinet import CabinetContract
from contracts.journal import JournalContract
from contracts.reportlog import ReportLogContract
from contracts.store import StoreContract, next_change, watching

from agent.adapters.directory import DirectoryCabinet, DirectoryDocumentStore, DirectoryJournal, DirectoryReportLog
from agent.domain.vocab import NodeName
from agent.errors import BadDocument, Conflict, Refused, Unavailable
from agent.ports import Cabinet, ConfigMap, DocumentStore, Journal, ReportLog

# As the API server gives it to `kubectl get cm -o json`.
AS_KUBECTL = """{
    "apiVersion": "v1",
    "data": {
        "a": "\\u003cb\\u003e \\u0026 é",
        "b": "1\\n2"
    },
    "kind": "ConfigMap",
    "metadata": {
        "annotations": {
            "note": "kept"
        },
        "labels": {
            "app": "x"
        },
        "managedFields": [
            {
                "manager": "fault-agent",
                "operation": "Update"
            }
        ],
        "name": "job-reschedule-reason",
        "namespace": "mindx-dl",
        "resourceVersion": "1",
        "uid": "3f0e"
    }
}
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestDirectoryDocumentStore(StoreContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "out"

    @pytest.fixture
    def folder(self, root: Path) -> DirectoryDocumentStore:
        return DirectoryDocumentStore(root, interval=0.01)

    @pytest.fixture
    def store(self, folder: DirectoryDocumentStore) -> DocumentStore:
        return folder

    @pytest.fixture
    def other(self, root: Path) -> DocumentStore:
        return DirectoryDocumentStore(root, manager="volcano", interval=0.01, durable=False)

    async def test_a_file_looks_as_kubectl_prints_it(self, folder: DirectoryDocumentStore, root: Path) -> None:
        await folder.put(
            ConfigMap(
                "mindx-dl",
                "job-reschedule-reason",
                data={"b": "1\n2", "a": "<b> & é"},
                labels={"app": "x"},
                annotations={"note": "kept"},
                uid="3f0e",
            )
        )
        text = await asyncio.to_thread((root / "mindx-dl" / "job-reschedule-reason.json").read_text)
        assert text == AS_KUBECTL

    async def test_an_exported_object_keeps_all_that_we_do_not_know(
        self, folder: DirectoryDocumentStore, root: Path
    ) -> None:
        item: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": {"v": "1"},
            "immutable": False,
            "metadata": {
                "name": "x",
                "namespace": "a",
                "resourceVersion": "98765",
                "uid": "u-1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["f/x"],
                "strange": {"k": 1},
                "managedFields": [
                    {"manager": "volcano", "operation": "Apply", "fieldsV1": {"f:data": {}}, "time": "2026-01-01"}
                ],
            },
        }
        path = root / "a" / "x.json"
        await asyncio.to_thread(write, path, json.dumps(item))
        read = await folder.get("a", "x")
        assert read is not None
        assert (read.resource_version, read.managers) == ("98765", ("volcano",))
        await folder.put(replace(read, data={"v": "2"}))
        written = json.loads(await asyncio.to_thread(path.read_text))
        assert written["data"] == {"v": "2"}
        assert written["immutable"] is False
        assert written["metadata"] == {
            **item["metadata"],
            "resourceVersion": "98766",
            "managedFields": [
                {"manager": "volcano", "operation": "Apply", "fieldsV1": {"f:data": {}}, "time": "2026-01-01"},
                {"manager": "fault-agent", "operation": "Update"},
            ],
        }

    async def test_an_object_written_by_hand_has_a_version_that_changes_with_it(
        self, folder: DirectoryDocumentStore, root: Path
    ) -> None:
        bare = '{"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"v": "%s"}}'
        await asyncio.to_thread(write, root / "a" / "x.json", bare % 1)
        first = await folder.get("a", "x")
        assert first is not None
        assert first.namespace == "a"
        await asyncio.to_thread(write, root / "a" / "x.json", bare % 2)
        with pytest.raises(Conflict):
            await folder.put(replace(first, data={"v": "3"}))
        second = await folder.get("a", "x")
        assert second is not None
        third = await folder.put(replace(second, data={"v": "3"}))
        assert third.resource_version == "1"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            pytest.param('{"kind": "ConfigMap",\n "metadata": {', "x.json:", id="half"),
            pytest.param("", "x.json:1", id="empty"),
            pytest.param("[]", "no JSON object", id="list"),
            pytest.param('{"kind": "Pod", "metadata": {"name": "x"}}', "/kind", id="other kind"),
            pytest.param('{"kind": "ConfigMap"}', "/metadata", id="no metadata"),
            pytest.param('{"kind": "ConfigMap", "metadata": {}}', "/metadata/name", id="no name"),
            pytest.param('{"kind": "ConfigMap", "metadata": {"name": "y"}}', "holds a/y", id="other name"),
            pytest.param(
                '{"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"v": 1}}', "/data/v", id="data is number"
            ),
            pytest.param('{"kind": "ConfigMap", "metadata": {"name": "x"}, "data": []}', "/data", id="data is list"),
            pytest.param(
                '{"kind": "ConfigMap", "metadata": {"name": "x", "managedFields": [1]}}', "managedFields", id="managers"
            ),
        ],
    )
    async def test_an_unreadable_file_is_named_and_costs_only_itself(
        self, folder: DirectoryDocumentStore, root: Path, text: str, reason: str
    ) -> None:
        await folder.put(ConfigMap("a", "good"))
        await asyncio.to_thread(write, root / "a" / "x.json", text)
        with pytest.raises(BadDocument, match=reason) as caught:
            await folder.get("a", "x")
        assert "x.json" in str(caught.value)
        assert [document.name for document in await folder.list()] == ["good"]
        assert len(folder.findings()) == 1
        assert "x.json" in folder.findings()[0]
        with pytest.raises(Conflict):
            await folder.put(ConfigMap("a", "x"))

    async def test_files_that_are_no_documents_are_left_alone(self, folder: DirectoryDocumentStore, root: Path) -> None:
        await folder.put(ConfigMap("a", "x"))
        for name in ("a/.x.json.tmp", "a/notes.txt", "readme.json", "Upper/y.json", "a/Y_1.json"):
            await asyncio.to_thread(write, root / name, "{")
        assert [document.name for document in await folder.list()] == ["x"]
        assert [finding.split(": ")[1] for finding in folder.findings()] == ["'Y_1' is no DNS-1123 subdomain"]

    async def test_a_leftover_of_a_killed_write_is_gone_after_the_next(
        self, folder: DirectoryDocumentStore, root: Path
    ) -> None:
        first = await folder.put(ConfigMap("a", "x", data={"v": "1"}))
        await asyncio.to_thread(write, root / "a" / ".x.json.tmp", '{"half')
        await folder.put(replace(first, data={"v": "2"}))
        assert sorted(await asyncio.to_thread(os.listdir, root / "a")) == ["x.json"]

    async def test_equal_content_does_not_touch_the_file(self, folder: DirectoryDocumentStore, root: Path) -> None:
        first = await folder.put(ConfigMap("a", "x", data={"v": "1"}))
        before = await asyncio.to_thread((root / "a" / "x.json").stat)
        await folder.put(first)
        assert await asyncio.to_thread((root / "a" / "x.json").stat) == before

    async def test_an_edit_by_hand_is_watched_and_a_broken_one_is_not_a_deletion(
        self, folder: DirectoryDocumentStore, root: Path
    ) -> None:
        await folder.put(ConfigMap("a", "x", data={"v": "1"}))
        path = root / "a" / "x.json"
        text = await asyncio.to_thread(path.read_text)
        async with watching(folder) as changes:
            assert await next_change(changes) == ("set", "x", "1")
            await asyncio.to_thread(write, path, text.replace('"v": "1"', '"v": "2"'))
            assert await next_change(changes) == ("set", "x", "2")
            await asyncio.to_thread(write, path, "{")
            await folder.put(ConfigMap("b", "y", data={"v": "1"}))
            assert await next_change(changes) == ("set", "y", "1")

    async def test_the_same_writes_give_the_same_bytes(self, tmp_path: Path) -> None:
        texts = []
        for name in ("one", "two"):
            store = DirectoryDocumentStore(tmp_path / name, durable=False)
            first = await store.put(ConfigMap("a", "x", data={"v": "1"}))
            await store.put(replace(first, data={"v": "2"}))
            texts.append(await asyncio.to_thread((tmp_path / name / "a" / "x.json").read_bytes))
        assert texts[0] == texts[1]

    async def test_a_root_that_cannot_be_a_folder_is_an_error_of_ours(self, tmp_path: Path) -> None:
        await asyncio.to_thread(write, tmp_path / "file", "")
        store = DirectoryDocumentStore(tmp_path / "file" / "out")
        with pytest.raises(Unavailable):
            await store.put(ConfigMap("a", "x"))
        assert await store.get("a", "x") is None


class TestDirectoryReportLog(ReportLogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> ReportLog:
        return DirectoryReportLog(tmp_path / "state")

    async def test_each_report_is_a_file_of_its_own(self, tmp_path: Path) -> None:
        log = DirectoryReportLog(tmp_path)
        await log.publish({NodeName("n1"): b"{}", NodeName("n2.rack-7"): b"{}"})
        assert sorted(await asyncio.to_thread(os.listdir, tmp_path / "reports")) == [
            ".lock",
            "n1.json",
            "n2.rack-7.json",
        ]

    @pytest.mark.parametrize("node", ["../n1", "", "N1", ".n1", "a/b"])
    async def test_a_name_that_is_no_nodes_is_refused(self, tmp_path: Path, node: str) -> None:
        log = DirectoryReportLog(tmp_path)
        with pytest.raises(Refused):
            await log.publish({NodeName("n1"): b"{}", NodeName(node): b"{}"})
        assert dict(await log.latest()) == {}

    async def test_other_files_are_no_reports(self, tmp_path: Path) -> None:
        for name in ("notes.txt", ".n2.json.tmp", "N3.json"):
            await asyncio.to_thread(write, tmp_path / "reports" / name, "x")
        assert dict(await DirectoryReportLog(tmp_path).latest()) == {}


class TestDirectoryCabinet(CabinetContract):
    @pytest.fixture
    def cabinet(self, tmp_path: Path) -> Cabinet:
        return DirectoryCabinet(tmp_path / "state")

    @pytest.fixture
    def again(self, tmp_path: Path) -> Cabinet:
        return DirectoryCabinet(tmp_path / "state")

    @pytest.mark.parametrize("name", ["../x", "", ".lock", "a/b", "x\n"])
    async def test_a_name_that_leads_elsewhere_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(Refused):
            await DirectoryCabinet(tmp_path).store(name, b"")
        with pytest.raises(Refused):
            await DirectoryCabinet(tmp_path).load(name)


class TestDirectoryJournal(JournalContract):
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Journal:
        return DirectoryJournal(tmp_path / "audit" / "journal.jsonl")

    async def test_a_torn_last_line_is_kept_aside_and_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        await asyncio.to_thread(write, path, "one\ntw")
        journal = DirectoryJournal(path)
        assert list(await journal.read()) == [b"one"]
        assert journal.findings() == ()
        await journal.append([b"three"])
        assert list(await journal.read()) == [b"one", b"three"]
        assert await asyncio.to_thread((tmp_path / "journal.jsonl.torn").read_text) == "tw\n"
        assert len(journal.findings()) == 1
        await journal.append([b"four"])
        assert len(journal.findings()) == 1

    async def test_a_journal_that_is_one_torn_line_starts_over(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        await asyncio.to_thread(write, path, "tw")
        journal = DirectoryJournal(path, durable=False)
        await journal.append([b"one"])
        assert list(await journal.read()) == [b"one"]

    def test_an_append_that_fails_half_way_leaves_the_journal_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        # A limit to the size of files stands for a full disk: the first bytes go in, then no more.
        script = f"""
import asyncio, resource
from pathlib import Path
from agent.adapters.directory import DirectoryJournal
from agent.errors import Unavailable
journal = DirectoryJournal(Path({str(path)!r}))
asyncio.run(journal.append([b"one"]))
resource.setrlimit(resource.RLIMIT_FSIZE, (30, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        asyncio.run(journal.append([b"two", b"three", b"x" * 50]))
    except Unavailable as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
asyncio.run(journal.append([b"two", b"three"]))
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240)
        assert done.stdout.count("File too large") == 2
        assert path.read_bytes() == b"one\ntwo\nthree\n"
        assert not path.with_name("journal.jsonl.torn").exists()

    async def test_two_openings_do_not_mix_their_lines(self, tmp_path: Path) -> None:
        one, two = DirectoryJournal(tmp_path / "j", durable=False), DirectoryJournal(tmp_path / "j", durable=False)
        await asyncio.gather(
            *(j.append([t * 5000, t * 5000]) for _ in range(10) for j, t in ((one, b"1"), (two, b"2")))
        )
        lines = await one.read()
        assert sorted({bytes(line[:1]) for line in lines}) == [b"1", b"2"]
        assert [len(line) for line in lines] == [5000] * 40
