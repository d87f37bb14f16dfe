"""A command as the link query: its answer, its failures, and that nothing of it is left behind."""

import asyncio
import os
import select
import signal
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from contracts.linkprobe import LinkProbeContract
from virtualtime import leap

from agent.adapters import linkcommand
from agent.adapters.linkcommand import MOST_BYTES, CommandLinkProbe
from agent.errors import Unavailable

ANSWERS = """#!/bin/sh
case "$2" in
  0) echo 'link status: UP' ;;
  1) echo 'link status: DOWN' ;;
  2) printf '\\377 not an answer\\n' ;;
  *) echo 'device is not there' >&2; exit 1 ;;
esac
"""


TIMEOUT_S = 30.0
"""Of a query; a test that wants it to pass leaps over it once the query has come to where it hangs."""
NO_ANSWER = r"^device 0: no answer within 30 s$"


def script(folder: Path, text: str) -> str:
    path = folder / "link query"  # a blank that a shell would stumble over
    path.write_text(text, encoding="utf-8")
    path.chmod(stat.S_IRWXU)
    return str(path)


def asking(folder: Path, text: str) -> CommandLinkProbe:
    return CommandLinkProbe((script(folder, text), "-i", "{device}", "-link", "-g"), timeout_s=TIMEOUT_S)


async def timing_out(probe: CommandLinkProbe, pids: Path) -> tuple[asyncio.Task[bytes], Sequence[int]]:
    """A query that has come to where it hangs, with its time-out just over; and the processes it told of."""
    asked = asyncio.create_task(probe.ask(0))
    told = await asyncio.to_thread(pids.read_text)
    while not probe._running:  # noqa: ASYNC110  # from then on its time-out runs; no event tells
        await asyncio.sleep(0)
    leap(TIMEOUT_S)
    return asked, [int(pid) for pid in told.split()]


@pytest.fixture(autouse=True)
def _a_kill_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: that a killed query is taken off the books is shown, not how soon."""
    monkeypatch.setattr(linkcommand, "KILL_S", TIMEOUT_S)


class TestCommandLinkProbe(LinkProbeContract):
    @pytest.fixture
    def probe(self, tmp_path: Path) -> CommandLinkProbe:
        return asking(tmp_path, ANSWERS)


async def test_a_failure_tells_what_the_tool_complained_of(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^device 7: exit code 1: device is not there$"):
        await asking(tmp_path, ANSWERS).ask(7)


async def test_a_program_that_is_not_there_is_unavailable_and_names_the_setting(tmp_path: Path) -> None:
    probe = CommandLinkProbe((str(tmp_path / "none"), "{device}"), timeout_s=TIMEOUT_S)
    with pytest.raises(Unavailable, match=r"cannot be run: No such file.*node\.link_probe\.command"):
        await probe.ask(0)


async def test_a_query_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    # The child keeps both outputs open, so that only its own end lets go of them.
    probe = asking(tmp_path, f'#!/bin/sh\nsleep 1000 &\necho "$$ $!" > "{pids}"\nwait\n')
    asked, (shell, child) = await timing_out(probe, pids)
    with pytest.raises(Unavailable, match=NO_ANSWER):
        await asked
    assert _ended(shell, within_s=TIMEOUT_S)
    assert _ended(child, within_s=TIMEOUT_S)
    assert probe._running == {}


def _ended(pid: int, within_s: float) -> bool:
    """It has ended, or does so now, though nobody may have waited for it yet: a kill is carried out after it is sent,
    and of a child's child nobody here is told.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_s)[0])
    finally:
        os.close(process)


async def test_of_what_left_its_process_group_no_pipe_is_kept(tmp_path: Path) -> None:
    """A daemon that a query started holds both outputs for as long as it lives."""
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    text = f"#!/bin/sh\nsetsid sh -c 'echo $$ > \"{pids}\"; exec sleep 1000' &\necho 'link status: UP'\n"
    probe = asking(tmp_path, text)
    before = _pipes()
    asked, (daemon,) = await timing_out(probe, pids)
    with pytest.raises(Unavailable, match=NO_ANSWER):
        await asked
    await asyncio.sleep(0)  # the loop closes a pipe in its next turn
    assert not _ended(daemon, within_s=0)
    os.kill(daemon, signal.SIGKILL)
    assert _pipes() <= before  # what an earlier test left may have been let go of meanwhile


def _pipes() -> set[str]:
    """Pipes that this process holds an end of."""
    names = (_target(entry) for entry in Path("/proc/self/fd").iterdir())
    return {name for name in names if name.startswith("pipe:")}


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:  # the listing's own
        return ""


@pytest.mark.parametrize("where", ["", " >&2"], ids=["answer", "complaint"])
async def test_an_endless_answer_is_cut_off(tmp_path: Path, where: str) -> None:
    text = f"#!/bin/sh\nwhile :; do echo 'link status: UP'{where}; done\n"
    with pytest.raises(Unavailable, match=rf"^device 0: (an answer of more than {MOST_BYTES} bytes|ended by signal 9)"):
        await asking(tmp_path, text).ask(0)


async def test_what_it_sees_of_us_is_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT_AGENT_KAFKA__PASSWORD", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/Ascend/driver/lib64")
    probe = asking(tmp_path, '#!/bin/sh\necho "$@"; pwd; env | sort; cat\n')
    lines = (await probe.ask(4)).decode().splitlines()
    assert lines[:2] == ["-i 4 -link -g", "/"]
    names = {line.partition("=")[0] for line in lines[2:]}
    assert {"LD_LIBRARY_PATH", "PATH"} <= names <= {"LD_LIBRARY_PATH", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    assert "secret" not in "".join(lines)


async def test_one_that_is_given_up_on_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    probe = asking(tmp_path, f'#!/bin/sh\necho "$$" > "{pids}"\nexec sleep 1000\n')
    asked = asyncio.create_task(probe.ask(0))
    pid = int(await asyncio.to_thread(pids.read_text))
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert _ended(pid, within_s=TIMEOUT_S)


async def test_close_ends_what_still_runs(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    probe = asking(tmp_path, f'#!/bin/sh\necho "$$" > "{pids}"\nexec sleep 1000\n')
    asked = asyncio.create_task(probe.ask(0))
    await asyncio.to_thread(pids.read_text)
    await probe.close()
    with pytest.raises(Unavailable, match="ended by signal 9"):
        await asked


async def test_while_a_query_cannot_be_ended_no_other_is_begun_for_its_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    probe = asking(tmp_path, f'#!/bin/sh\necho "$$" > "{pids}"\nexec sleep 1000\n')
    with monkeypatch.context() as driver:  # as a process that waits in the driver: no signal reaches it
        driver.setattr(linkcommand, "KILL_S", 0.0)
        driver.setattr(linkcommand, "_kill", lambda _: None)
        asked, _ = await timing_out(probe, pids)
        with pytest.raises(Unavailable, match=NO_ANSWER):
            await asked
    with pytest.raises(Unavailable, match="the query before this one cannot be ended"):
        await probe.ask(0)
    await probe.close()
    assert probe._running == {}
