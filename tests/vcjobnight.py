"""Readers of `vcjob-fault-npu-cm` for its tests."""

import json
from typing import Any

from kubebuilders import a_config_map
from rig import Rig

VCJOB = "volcano-system/vcjob-fault-npu-cm"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
SEPARATE, MILD, SUB_HEALTH, LINK, PRE, UNKNOWN = "80E18402", "80818200", "80DE0207", "81078603", "8F180220", "8F0000A2"


SWITCH = {"switchChipId": 0, "switchPortId": 1}


def holding(data: dict[str, str], **given: Any) -> dict[str, Any]:
    return a_config_map("vcjob-fault-npu-cm", data, namespace="volcano-system", **given)


async def nodes_of(rig: Rig) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((await rig.data(VCJOB) or {})["fault-node"])
    return found
