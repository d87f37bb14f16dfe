"""Models of the programs that read our documents, to see what our writes do to training: the two that read `reset.json`
in a training container, and ascend-operator.

`MsrunPod` is one pod of a MindSpore job under msrun, `TaskdManager` the manager of a job under TaskD. They hold the
rules those programs follow: one `poll` is one round of their loop over the text that is mounted now. Time counts only
where a test gives it: a pod that restarts for RetryTime sleeps, and one that may not start gives up in the end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WAITING, RUNNING, KILLED, EXITED = "waiting", "running", "killed", "exited"
PAUSE = 60
"""Seconds between stopping and starting workers for a raised RetryTime (msrun_plugin.py KILL_INTERVAL)."""
PATIENCE = 900
"""Seconds after which a pod that may not start gives up (constants.py INIT_TIMEOUT)."""


def _read(text: str) -> dict[str, Any]:
    try:
        obj = json.loads(text)
    except ValueError:
        return {}
    return obj if isinstance(obj, dict) else {}


def _typed(obj: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = obj.get(name, default)
    return value if type(value) is kind else default


def _rank(entry: dict[str, Any]) -> Any:
    return entry.get("RankId")


@dataclass
class Judgement:
    """What a poll makes of the file."""

    is_fault: bool = False
    is_unrecovered: bool = False
    is_retried: bool = False
    local_fault_ranks: list[int] = field(default_factory=list)
    all_recovered: bool | None = None


@dataclass
class MsrunPod:
    """One pod with its global ranks. `starts` and `kills` count what its workers went through."""

    ranks: tuple[int, ...]
    node_rank: int = 1
    process_restart: bool = False
    state: str = WAITING
    starts: int = 0
    kills: int = 0
    rank_restarts: int = 0
    handled: list[Any] | None = None
    """The last list it handled as all recovered; none in a new process."""
    retry: int = 0
    """The last RetryTime it acted on."""
    table: int = 0
    """The rank-table version it last waited for."""
    _after_retry: int | None = None
    _until: int | None = None
    """Asleep between stopping and starting until that second."""
    _waiting_since: int | None = None

    def may_start(self, text: str) -> bool:
        obj = _read(text)
        if _typed(obj, "FaultFlushing", bool, False):
            return False
        return not any(e.get("Status") == "fault" and e.get("RankId") in self.ranks for e in self._list(obj))

    def judge(self, text: str) -> Judgement:
        obj = _read(text)
        entries = self._list(obj)
        seen = Judgement(is_retried=_typed(obj, "RetryTime", int, 0) > self.retry)
        if entries != self.handled:
            for entry in entries:
                if entry.get("Status") == "fault" and entry.get("RankId") in self.ranks:
                    seen.is_fault = True
                    seen.local_fault_ranks.append(entry["RankId"])
                if entry.get("Status") in ("unrecovered", "recovered"):
                    seen.is_unrecovered = True
        if seen.is_unrecovered:
            seen.all_recovered = self._all_recovered(entries)
        return seen

    def poll(self, text: str, restart_type: str = "", version: int | None = None, now: int | None = None) -> None:
        """One round. `now` in seconds; without it a sleep is over at once and nothing is waited for too long."""
        if self.state == EXITED or (self._until is not None and now is not None and now < self._until):
            return
        self._until = None
        if self.state == WAITING:
            self._gate(text)
            self._lose_patience(now)
            return
        obj = _read(text)
        seen = self.judge(text)
        if _typed(obj, "GracefulExit", int, 0) == 1:
            self._kill()
        elif seen.is_fault:
            self._local_fault(obj)
        elif seen.is_retried and not seen.is_unrecovered:
            if self._ready(obj, restart_type, version):
                self._kill()
                self.state, self._after_retry = WAITING, self.retry
                if now is None:
                    self._gate(text)
                else:
                    self._until = now + PAUSE
        elif seen.is_unrecovered:
            self._kill()
            if self._ready(obj, restart_type, version):
                self.state = WAITING
                self._gate(text)

    def _local_fault(self, obj: dict[str, Any]) -> None:
        restart = _typed(obj, "RestartFaultProcess", bool, False)
        if self.node_rank != 0 and restart and self.process_restart:
            self.rank_restarts += 1
            return
        self._kill()
        self.state = EXITED

    def _ready(self, obj: dict[str, Any], restart_type: str, version: int | None) -> bool:
        entries = self._list(obj)
        if not self._all_recovered(entries):
            return False
        if restart_type == "podReschedule" and version is not None:
            if version <= self.table:
                return False
            self.table = version
        self.retry, self.handled = _typed(obj, "RetryTime", int, 0), entries
        return True

    def _gate(self, text: str) -> None:
        after_retry, self._after_retry = self._after_retry, None
        self.retry = _typed(_read(text), "RetryTime", int, 0)
        if not self.may_start(text):
            self._after_retry = after_retry
            return
        self.state = RUNNING
        self.starts += 1
        if after_retry is not None:
            self.retry, self.handled = after_retry, []

    def _lose_patience(self, now: int | None) -> None:
        if self.state != WAITING or now is None:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since >= PATIENCE:
            self.state = EXITED

    def _kill(self) -> None:
        if self.state == RUNNING:
            self.kills += 1
        self.state = KILLED

    @staticmethod
    def _list(obj: dict[str, Any]) -> list[dict[str, Any]]:
        found = [entry for entry in _typed(obj, "RankList", list, []) if isinstance(entry, dict)]
        return sorted(found, key=_rank)

    @staticmethod
    def _all_recovered(entries: list[dict[str, Any]]) -> bool:
        return all(entry.get("Status", "recovered") == "recovered" for entry in entries)


@dataclass
class TaskdManager:
    """Restarts all agents of its job on any other RetryTime than the last; entries do not matter to it."""

    retry: int = 0
    restarts: int = 0
    errors: int = 0

    def poll(self, text: str) -> None:
        try:
            obj = json.loads(text)
        except ValueError:
            return
        retry = obj.get("RetryTime", 0)
        if type(retry) is not int or retry < 0:
            self.errors += 1
        elif retry != self.retry:
            self.retry = retry
            self.restarts += 1


FAILED, RESTARTING, CRASHED = "Failed", "Restarting", "crashed"


def operator_decides(data: Mapping[str, str] | None, job: str) -> str:
    """What ascend-operator makes of an AscendJob with retries whose pod has failed, by `vcjob-fault-npu-cm`.

    `data` None: there is no such ConfigMap. One entry of a wrong type spoils the map for every job; a null one of the
    job itself is dereferenced.
    """
    try:
        left = json.loads((data or {})["remain-retry-times"])
    except (KeyError, ValueError):
        return FAILED
    if not isinstance(left, dict) or not all(_is_entry(one) for one in left.values()) or job not in left:
        return FAILED
    if left[job] is None:
        return CRASHED
    return RESTARTING if left[job].get("Times", 0) >= 1 else FAILED


def _is_entry(one: Any) -> bool:
    return one is None or (
        isinstance(one, dict) and type(one.get("UUID", "")) is str and type(one.get("Times", 0)) is int
    )
