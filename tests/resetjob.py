"""A small job with its `reset.json`, our recoveries and both readers: drives one through what happens to the other."""

from dataclasses import dataclass, field

from readers import MsrunPod, TaskdManager

from agent.domain.reset import (
    Executor,
    Outcome,
    Phase,
    Policy,
    Recovery,
    ResetDevice,
    ResetInfo,
    ResetLimits,
    Signal,
    merge,
    recorded,
    start,
    step,
)
from agent.domain.vocab import Millis, NodeName
from agent.wire.resetfile import decode_reset, encode_reset

LIMITS = ResetLimits()
T0 = Millis(1767225600000)


@dataclass
class Job:
    """A job of two pods on two nodes with four devices each, its document, our recoveries and its readers."""

    text: str = '{"status":"initializing"}'
    restart_type: str = ""
    now: Millis = T0
    recoveries: dict[str, Recovery] = field(default_factory=dict)
    pods: dict[str, MsrunPod] = field(
        default_factory=lambda: {"n1": MsrunPod((0, 1, 2, 3), node_rank=0), "n2": MsrunPod((4, 5, 6, 7))}
    )
    taskd: TaskdManager = field(default_factory=TaskdManager)
    next_id: int = 1
    raises: int = 0
    foreign_raises: int = 0

    def begin(self, node: str, policy: Policy = Policy.RESTART_REQUEST, executor: Executor = Executor.NONE) -> None:
        first = 0 if node == "n1" else 4
        devices = [ResetDevice(first + i, i, NodeName(node), i, ("80C98000",) if i == 2 else ()) for i in range(4)]
        begun = start(self.next_id, policy, devices, NodeName(node), self.now, LIMITS, executor)
        assert isinstance(begun, Recovery)
        self.recoveries[node] = begun
        self.next_id += 1

    def signal(self, node: str, signal: Signal) -> None:
        recovery = self.recoveries.get(node)
        moved = step(recovery, signal, self.now, LIMITS) if recovery else None
        if moved:
            self.recoveries[node] = moved.recovery

    def write(self) -> None:
        """One round of the coordinator: each recovery onto the document until nothing is left to write."""
        for node in list(self.recoveries):
            for _ in range(6):
                recovery = self.recoveries[node]
                made = merge(decode_reset(self.text), recovery, self.now)
                if made.changed:
                    self.text = encode_reset(made.info)
                    self.restart_type = made.restart_type or self.restart_type
                    self.raises += made.raised
                self.recoveries[node] = recorded(recovery, made)
                if made.outcome is Outcome.ABSENT:
                    self.signal(node, Signal.FOREIGN_CLEAR)
                elif made.outcome is Outcome.LEFT:
                    self.signal(node, Signal.LEFT)
                    break
                elif made.outcome is not Outcome.SHOWN:
                    break
            if self.recoveries[node].phase is Phase.ENDED:
                del self.recoveries[node]

    def write_and_forget(self, node: str) -> None:
        """The process ends between the write and the ledger's note of it."""
        recovery = self.recoveries.get(node)
        if recovery is None:
            return
        made = merge(decode_reset(self.text), recovery, self.now)
        if made.changed:
            self.text = encode_reset(made.info)
            self.restart_type = made.restart_type or self.restart_type
            self.raises += made.raised

    def clear(self, raised: bool) -> None:
        """Somebody else empties the list, as ClusterD (clear, restartAllProcess) or Volcano do."""
        info = decode_reset(self.text)
        self.foreign_raises += raised
        self.text = encode_reset(ResetInfo(rank_list=(), retry_time=info.retry_time + raised))

    def poll(self, *nodes: str) -> None:
        for node in nodes or ("n1", "n2"):
            self.pods[node].poll(self.text, self.restart_type, version=1)

    def advance(self, seconds: int) -> None:
        self.now = Millis(self.now + seconds * 1000)
        for node in list(self.recoveries):
            self.signal(node, Signal.DEADLINE)

    def finish(self) -> None:
        """Let the clock run until no recovery is left, then let every reader look often enough."""
        for _ in range(40):
            self.write()
            self.advance(50)
        assert not self.recoveries
        for _ in range(4):
            self.poll()
            self.taskd.poll(self.text)
