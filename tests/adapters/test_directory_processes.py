"""State in folders that other processes write too, and whose writers are killed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from agent.adapters.directory import DirectoryCabinet, DirectoryDocumentStore, DirectoryJournal, DirectoryReportLog
from agent.domain.vocab import NodeName
from agent.ports import ConfigMap

COUNT_UP = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from agent.adapters.directory import DirectoryDocumentStore
from agent.errors import Conflict

async def main():
    store = DirectoryDocumentStore(Path(sys.argv[1]), manager=sys.argv[2], durable=False)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(200):
        while True:
            document = await store.get("a", "counter")
            try:
                await store.put(replace(document, data={"n": str(int(document.data["n"]) + 1)}))
                break
            except Conflict:
                pass

asyncio.run(main())
"""

WRITE_ON = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from agent.adapters.directory import DirectoryCabinet, DirectoryDocumentStore, DirectoryJournal, DirectoryReportLog
from agent.ports import ConfigMap

async def main():
    root = Path(sys.argv[1])
    store = DirectoryDocumentStore(root / "documents")
    journal = DirectoryJournal(root / "journal")
    log = DirectoryReportLog(root / "state")
    cabinet = DirectoryCabinet(root / "cabinet")
    for n in range(int(sys.argv[2]), 10_000):
        text = f"{n:05}" * 4000
        name = f"x{n % 3}"
        document = await store.get("a", name)
        new = {"n": text}
        await store.put(replace(document, data=new) if document else ConfigMap("a", name, data=new))
        await journal.append([text.encode()])
        await log.publish({"n1": text.encode()})
        await cabinet.store("resume", text.encode())
        print(n, flush=True)

asyncio.run(main())
"""


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_two_processes_lose_none_of_each_others_writes(tmp_path: Path) -> None:
    folder = DirectoryDocumentStore(tmp_path)
    asyncio.run(folder.put(ConfigMap("a", "counter", data={"n": "0"})))
    children = [child(COUNT_UP, str(tmp_path), name) for name in ("one", "two")]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in children:
        process.communicate("go\n", timeout=240)
    assert [process.returncode for process in children] == [0, 0]
    document = asyncio.run(folder.get("a", "counter"))
    assert document is not None
    assert document.data == {"n": "400"}
    assert set(document.managers) == {"fault-agent", "one", "two"}


def test_a_kill_at_any_moment_leaves_every_file_whole(tmp_path: Path) -> None:
    moments = random.Random(20)
    done = -1
    for _ in range(4):
        process = child(WRITE_ON, str(tmp_path), str(done + 1))
        assert process.stdout is not None
        for _ in range(moments.randint(3, 12)):
            done = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        # Lines it had printed before it died count as done too.
        for line in process.stdout.read().split():
            done = max(done, int(line))
        process.wait(timeout=240)
        process.communicate()
        asyncio.run(_check_whole(tmp_path, done))


async def _check_whole(root: Path, done: int) -> None:
    """Everything printed as done is there; at most the next number is there too, and nothing is half."""
    store = DirectoryDocumentStore(root / "documents")
    texts = [document.data["n"] for document in await store.list()]
    assert store.findings() == ()
    cabinet = await DirectoryCabinet(root / "cabinet").load("resume")
    reports = await DirectoryReportLog(root / "state").latest()
    assert cabinet is not None
    for text in [*texts, cabinet.decode(), reports[NodeName("n1")].decode()]:
        assert text == text[:5] * 4000
    assert done <= max(int(text[:5]) for text in texts) <= done + 1
    assert done <= int(cabinet[:5]) <= done + 1
    journal = DirectoryJournal(root / "journal")
    numbers = [int(line[:5]) for line in await journal.read()]
    assert set(range(done + 1)) <= set(numbers) <= set(range(done + 2))
    assert all(len(line) == 20_000 for line in await journal.read())
    leftovers = [path.name for path in await asyncio.to_thread(lambda: list(root.rglob("*.tmp")))]
    assert len(leftovers) <= 3
