"""The rules of a rank table that need its circumstances, each with a verdict, and how strict all findings are taken.

The one rule: a rule holds only if it holds whatever is not known; else it is broken or not judged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.domain.jobs import Product, product_of_hardware
from agent.domain.ranktable import RankTable, is_address
from agent.wire.ranktablecheck import Finding, Severity
from agent.wire.ranktablefile import TableCode
from agent.wire.ranktables.circumstances import Circumstances


class Mode(StrEnum):
    """Whose rules are errors."""

    DOC = "doc"
    """What the vendor's document or HCCL's own reader asks; the document is the stricter of the two."""
    SOURCE = "source"
    """What HCCL's own reader refuses; what only the document asks is a warning."""


class Standing(StrEnum):
    """How a rule stands that needs the circumstances."""

    HOLDS = "holds"
    BROKEN = "broken"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One rule that needs the circumstances: how it stands and why."""

    code: TableCode
    standing: Standing
    why: str


Judged = tuple[Judgement, tuple[Finding, ...]]


def severity_under(mode: Mode, one: Finding, *, borrow: bool = False) -> Severity:
    """How much a finding matters as the mode weighs it; a backup that is not the other die only while a borrow is
    wanted.
    """
    if mode is Mode.SOURCE and one.by == "doc":
        return "warning"
    return "error" if borrow and one.code is TableCode.BACKUP_NOT_PAIR else one.severity


def judge(table: RankTable, around: Circumstances) -> tuple[Judged, ...]:
    """Every rule that needs the circumstances, in the order of the table's fields."""
    return tuple(rule(table, around) for rule in _RULES) if table.version != "2.0" else ()


def _stands(code: TableCode, fact: bool | None, broken: list[Finding], needs: str, without: str) -> Judged:
    """A rule that is in force if `fact` is, and that `broken` tells against."""
    if not broken:
        return Judgement(code, Standing.HOLDS, "nothing in the table is against it"), ()
    if fact is None:
        why = f"{len(broken)} place{'' if len(broken) == 1 else 's'}, first {broken[0].pointer}: {needs}"
        return Judgement(code, Standing.NOT_JUDGED, why), ()
    if not fact:
        return Judgement(code, Standing.HOLDS, without), ()
    return Judgement(code, Standing.BROKEN, f"{len(broken)} times"), tuple(broken)


def _unmatched(table: RankTable, around: Circumstances) -> str:
    """Why the cluster that was looked into did not tell it."""
    if not around.unmatched:
        return ""
    return (
        f"; {around.unmatched} of {len(table.servers)} servers have no pod in the cluster (they are matched by the"
        " pod's UID, host_ip or the pod's address)"
    )


def _host_ip(table: RankTable, around: Circumstances) -> Judged:
    message = "is needed while HCCL_OP_RETRY_ENABLE is on; without it HCCL never retries, and says nothing"
    broken = [
        Finding(TableCode.HOST_IP_REQUIRED, f"/server_list/{number}/host_ip", message, by="doc")
        for number, server in enumerate(table.servers)
        if not is_address(server.host_ip)
    ]
    needs = f"needed if HCCL_OP_RETRY_ENABLE is on, which is not known{_unmatched(table, around)}"
    return _stands(TableCode.HOST_IP_REQUIRED, around.retry, broken, needs, "operator retry is off")


def _device_ip(table: RankTable, around: Circumstances) -> Judged:
    inside = table.effective_mode() == "super_pod" and len(table.super_pods) == 1
    broken = [
        Finding(
            TableCode.DEVICE_IP_REQUIRED,
            f"/server_list/{number}/device/{index}/device_ip",
            "is needed in one super-pod while HCCL_INTER_HCCS_DISABLE is true",
            by="doc" if is_address(server.host_ip) else "both",
        )
        for number, server in enumerate(table.servers)
        for index, device in enumerate(server.devices)
        if inside and not device.device_ip
    ]
    needs = f"needed if HCCL_INTER_HCCS_DISABLE is true, which is not known{_unmatched(table, around)}"
    return _stands(TableCode.DEVICE_IP_REQUIRED, around.rdma_inside, broken, needs, "HCCS is in use in the super-pod")


def other_product(hardware_type: str) -> bool:
    """The table names a product, and it is not A3, on which alone two dies stand in for each other."""
    return bool(hardware_type) and product_of_hardware(hardware_type) is not Product.A3


def _backup(table: RankTable, around: Circumstances) -> Judged:
    if any(other_product(server.hardware_type) for server in table.servers):
        why = "backups are read on A3 alone, and hardware_type names another product"
        return Judgement(TableCode.NO_BACKUP_CONFIGURED, Standing.HOLDS, why), ()
    message = "no backup: a failed link of this die cannot be borrowed"
    broken = [
        Finding(
            TableCode.NO_BACKUP_CONFIGURED,
            f"/server_list/{number}/device/{index}/backup_device_ip",
            message,
            "warning",
            "doc",
            "fault-agent ranktable backup proposes them",
        )
        for number, server in enumerate(table.servers)
        for index, device in enumerate(server.devices)
        if not device.backup_device_ip
    ]
    needs = "wanted if HCCL_OP_RETRY_ENABLE has L2 on and operators run on the AI CPU, which is not known"
    needs += _unmatched(table, around)
    without = "backups are not read: retry between super-pods is off or operators do not run on the AI CPU"
    return _stands(TableCode.NO_BACKUP_CONFIGURED, around.borrow, broken, needs, without)


def _device_id(table: RankTable, around: Circumstances) -> Judged:
    unknown = [number for number, server in enumerate(table.servers) if server.server_id not in around.dies]
    broken = tuple(
        Finding(
            TableCode.DEVICE_ID_RANGE,
            f"/server_list/{number}/device/{index}/device_id",
            f"{device.device_id} is no device of the node, which has {len(dies)}",
        )
        for number, server in enumerate(table.servers)
        if (dies := around.dies.get(server.server_id)) is not None
        for index, device in enumerate(server.devices)
        if device.device_id not in dies
    )
    if broken:
        return Judgement(TableCode.DEVICE_ID_RANGE, Standing.BROKEN, f"{len(broken)} times"), broken
    if unknown:
        why = f"the devices of {len(unknown)} of {len(table.servers)} servers are not known"
        why += "; --cluster tells them" if around.unmatched is None else _unmatched(table, around)
        return Judgement(TableCode.DEVICE_ID_RANGE, Standing.NOT_JUDGED, why), ()
    return Judgement(TableCode.DEVICE_ID_RANGE, Standing.HOLDS, "every device is one of its node"), ()


def pairs(around: Circumstances, wrong: int) -> Judgement:
    """How the rule stands that a backup is the other die, when so many are not."""
    code = TableCode.BACKUP_NOT_PAIR
    if not wrong:
        return Judgement(code, Standing.HOLDS, "every backup is the other die of its NPU")
    if around.borrow is None:
        why = f"{wrong} told as warnings; errors if HCCL borrows (L2 on, AI CPU), which is not known"
        return Judgement(code, Standing.NOT_JUDGED, why)
    return Judgement(code, Standing.BROKEN, f"{wrong} times{'' if around.borrow else ', but backups are not read'}")


_RULES: Final[tuple[Callable[[RankTable, Circumstances], Judged], ...]] = (_host_ip, _device_id, _device_ip, _backup)
