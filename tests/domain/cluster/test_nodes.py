"""A node's entry from levels and use: PreSeparate waits for the job, worse beside it does not (faultcodes.md §5)."""

import pytest
from kubebuilders import a_pod, the_demo
from rig import Rig

from agent.domain.vocab import NodeName

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
PRE, SEPARATE, MILD, LINK = "8F180220", "80E18402", "80818200", "81078603"
IDLE, USED = 7, 2


async def entry(*faults: tuple[str, int], at: float = 40) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """State, UnhealthyNPU and NetworkUnhealthyNPU of n1, or None while it is not listed."""
    rig = Rig(the_demo(LABELS))
    for number, (code, device) in enumerate(faults):
        rig.fault(code, number, device=device)
    rig.tick(at)
    await rig.run()
    found = rig.book.entries.get(NodeName("n1"))
    return None if found is None else (found.health, found.unhealthy or (), found.network_unhealthy or ())


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param([(PRE, USED)], None, id="in use"),
        pytest.param([(PRE, IDLE)], ("CardUnhealthy", ("Ascend910-7",), ()), id="idle"),
        pytest.param([(MILD, USED)], None, id="mild"),
        pytest.param([(LINK, USED)], ("CardNetworkUnhealthy", (), ("Ascend910-2",)), id="network, in use or not"),
    ],
)
async def test_what_is_unhealthy_follows_from_level_plane_and_use(
    faults: list[tuple[str, int]], expected: tuple[str, tuple[str, ...], tuple[str, ...]] | None
) -> None:
    assert await entry(*faults) == expected


@pytest.mark.parametrize("order", [(PRE, SEPARATE), (SEPARATE, PRE)])
async def test_a_device_in_use_with_something_worse_beside_preseparate_is_unhealthy(order: tuple[str, str]) -> None:
    # Quirk: ClusterD takes a PreSeparateNPU chip in use off the unhealthy list whatever else it has.
    assert await entry(*((code, USED) for code in order)) == ("CardUnhealthy", ("Ascend910-2",), ())


async def test_a_device_becomes_unhealthy_once_its_job_has_left() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(PRE, 1)
    rig.apply(a_pod("demo-0", phase="Succeeded", labels=LABELS), 10)
    rig.tick(20)
    await rig.run()
    found = rig.book.entries[NodeName("n1")]
    assert (found.health, found.unhealthy) == ("CardUnhealthy", ("Ascend910-2",))
