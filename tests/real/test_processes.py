"""A service as a process: it ends when told, when frozen, and when the test run itself is killed.

The one rule: no service is needed here; `sleep` and `sh` stand for one.
"""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from services.processes import Process, ServiceFailedError, free_ports, port_closed, wait_until

TESTS = Path(__file__).parent.parent
OWNER = """
import sys, time
from pathlib import Path
from services.processes import Process
process = Process("sleeper", ["sleep", "600"], Path(sys.argv[1]))
process.start()
print(process.pid, flush=True)
sys.stdin.read()
"""


def _said(process: Process, lines: list[str]) -> str:
    return "" if process.log_tail() == lines else "not said"


def alive(pid: int) -> bool:
    """False when there is no such process, or only what is left of one that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_service_does_not_outlive_a_test_run_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "log")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={"PYTHONPATH": str(TESTS)}, stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.send_signal(signal.SIGKILL)
    wait_until("the service gone", lambda: "alive" if alive(pid) else "", seconds=10)


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_service_ends_at_the_first_asking_when(paused: bool, tmp_path: Path) -> None:
    process = Process("sleeper", ["sleep", "600"], tmp_path / "log")
    process.start()
    pid = process.pid
    if paused:
        process.pause()
    process.stop(grace_s=30)
    assert (process.running, alive(pid)) == (False, False)
    process.stop()


def test_a_service_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = Process("deaf", ["sh", "-c", f"trap '' TERM; touch {ready}; sleep 600 & wait; wait"], tmp_path / "log")
    process.start()
    process.wait_ready(lambda: "" if ready.exists() else "not yet", seconds=10)
    process.stop(grace_s=0.1)
    assert not process.running


def test_a_service_that_ends_by_itself_shows_its_last_lines(tmp_path: Path) -> None:
    process = Process("brief", ["sh", "-c", "echo no such option >&2; exit 7"], tmp_path / "log")
    process.start()
    with pytest.raises(ServiceFailedError, match=r"brief ended with 7[\s\S]*no such option"):
        process.wait_ready(lambda: "not yet", seconds=30)
    assert not process.running


def test_a_service_that_is_never_ready_is_stopped_and_says_what_was_missing(tmp_path: Path) -> None:
    process = Process("slow", ["sleep", "600"], tmp_path / "log")
    process.start()
    with pytest.raises(ServiceFailedError, match="slow ready: not within 0 s: not yet"):
        process.wait_ready(lambda: "not yet", seconds=0)
    assert not process.running


def test_a_service_can_be_started_again_and_its_log_goes_on(tmp_path: Path) -> None:
    process = Process("echo", ["sh", "-c", "echo here; exec sleep 600"], tmp_path / "log")
    for said in (["here"], ["here", "here"]):
        process.start()
        process.wait_ready(partial(_said, process, said), seconds=10)
        process.stop()
    assert process.log_tail() == ["here", "here"]


def test_ports_are_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768
    assert "refused" in port_closed(ports[0])
