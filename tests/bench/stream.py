"""A made stream of one busy node: the same seed gives the same records.

The one rule: it looks like a bad day and not like one code repeated: 64 devices, chip codes of every level, links that
go down for short and for long, switch, node, DPU and public faults, unknown codes, repeats of a message, one broken
record in a thousand. Which fault is active is remembered, so that recovers meet their occurs.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agent.domain.events import Position, Record
from agent.domain.policy import Policy
from agent.domain.vocab import Millis

NODE: Final = "bench-node-0"
START: Final = 1_767_225_600_000
STEP_MS: Final = 10
"""Event time between two records: 100 a second of one node, six thousand times what device-plugin passes on."""
DEVICES: Final = 64
CODES_PER_DEVICE: Final = 4
PUBLIC_IDS: Final = 128
_SOURCES: Final = ("dcmi", "hccn", "lingqu", "ipmi", "dpu", "CCAE")
_WEIGHTS: Final = (70, 12, 5, 3, 3, 7)


@dataclass(slots=True)
class _Fault:
    """One thing that can be broken: its fault without time and assertion, and whether it is broken now."""

    resource: str
    body: dict[str, Any]
    broken: bool = False


class Stream:
    """Endless records; `take(n)` gives the next n. `start`: time of the first, ms."""

    def __init__(self, policy: Policy, seed: int = 1, *, start: int = START) -> None:
        self._random = random.Random(seed)
        self._start = start
        self._offset = 0
        self._last: bytes = b""
        self._faults = {source: _faults(policy, source, self._random) for source in _SOURCES}

    def take(self, count: int) -> list[Record]:
        """The next records of the node, with increasing offsets and times."""
        return list(self._some(count))

    def _some(self, count: int) -> Iterator[Record]:
        pick = self._random
        for _ in range(count):
            now = self._start + self._offset * STEP_MS
            if pick.random() < 0.001:
                value = b'{"id":"broken-record","timestamp":' + str(now).encode()
            elif self._last and pick.random() < 0.002:
                value = self._last  # a sender's second try
            else:
                (source,) = pick.choices(_SOURCES, _WEIGHTS)
                several = 1 if pick.random() < 0.8 else pick.randint(2, 4)
                faults = [self._assert(fault, now) for fault in pick.sample(self._faults[source], several)]
                value = self._last = orjson.dumps(
                    {
                        "id": f"{NODE}-{self._offset:08d}",
                        "timestamp": now,
                        "version": "1.0",
                        "resource": source,
                        "faults": faults,
                    }
                )
            yield Record(Position(1, 0, self._offset), NODE.encode(), value, (), Millis(now))
            self._offset += 1

    def _assert(self, fault: _Fault, now: int) -> dict[str, Any]:
        if not fault.broken and self._random.random() < 0.05:
            assertion = "once"
        else:
            assertion = "recover" if fault.broken else "occur"
            fault.broken = not fault.broken
        return {**fault.body, "faultTime": now - self._random.randint(0, 400), "assertion": assertion}


def _faults(policy: Policy, source: str, pick: random.Random) -> list[_Fault]:
    chip = sorted(rule.code for rule in policy.chip.values())
    if source == "dcmi":
        codes = [*pick.sample(chip, 62), "80FFFF01", "80FFFF02"]
        made = [
            (device, code)
            for device in range(DEVICES)
            for code in pick.sample(codes, CODES_PER_DEVICE)
            if code != "81078603"
        ]
        return [
            _fault(source, "NPU", code, f"{device}", [device], severity=str(pick.randint(0, 3)))
            for device, code in made
        ]
    if source == "hccn":
        return [_fault(source, "Network", "81078603", f"{device}", [device]) for device in range(DEVICES)]
    if source == "lingqu":
        return [
            _fault(source, "Network", code, f"{port}", None, switchChipId=str(port % 7), switchPortId=str(port))
            for port, code in enumerate(pick.sample(sorted(policy.switch), 24))
        ]
    if source == "ipmi":
        return [
            _fault(source, "Node", code, f"{part}", None, deviceType="1", deviceId=str(part))
            for part, code in enumerate(pick.sample(sorted(policy.node), 16))
        ]
    if source == "dpu":
        return [
            _fault(source, "NPU", code, f"{device}", [device]) for device in range(8) for code in sorted(policy.dpu)
        ]
    return [
        _fault(source, "Network", pick.choice(sorted(policy.public)), f"{number}", [number % 32])
        for number in range(PUBLIC_IDS)
    ]


def _fault(resource: str, kind: str, code: str, part: str, devices: list[int] | None, **location: str) -> _Fault:
    influence: dict[str, Any] = {"nodeName": NODE}
    if devices is not None:
        influence["deviceIds"] = devices
    name = "".join(sign if sign.isalnum() else "-" for sign in code)
    body = {
        "faultId": f"{NODE}-{part}-{name}",
        "faultType": kind,
        "faultCode": code,
        "faultLocation": location,
        "influence": [influence],
        "description": "made for a benchmark",
    }
    return _Fault(resource, body)
