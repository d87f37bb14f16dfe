"""What every JobView must do. A filler's test gives the fixture `world`: how to change what the view looks at."""

from collections.abc import Mapping
from typing import Any, Protocol

from agent.ports import JobView

POD: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "demo-0", "namespace": "train", "annotations": {"huawei.com/AscendReal": "Ascend910-0"}},
    "spec": {"nodeName": "n1"},
}
NODE: Mapping[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


class World(Protocol):
    """The view, and the hand that changes what it sees."""

    view: JobView

    async def apply(self, item: Mapping[str, Any]) -> None:
        """Set an object."""

    async def remove(self, item: Mapping[str, Any]) -> None:
        """Take an object away."""

    async def spoil(self) -> None:
        """Add something that cannot be read."""


class JobViewContract:
    async def test_an_empty_cluster_has_no_objects(self, world: World) -> None:
        objects, findings = await world.view.snapshot()
        assert (list(objects), list(findings)) == ([], [])

    async def test_every_object_comes_as_it_is(self, world: World) -> None:
        await world.apply(POD)
        await world.apply(NODE)
        objects, findings = await world.view.snapshot()
        assert sorted(objects, key=lambda item: str(item["kind"])) == [NODE, POD]
        assert list(findings) == []

    async def test_an_object_set_again_is_seen_as_it_is_now(self, world: World) -> None:
        await world.apply(POD)
        await world.view.snapshot()
        moved = {**POD, "spec": {"nodeName": "n2"}}
        await world.apply(moved)
        assert list((await world.view.snapshot())[0]) == [moved]
        await world.remove(moved)
        assert list((await world.view.snapshot())[0]) == []

    async def test_what_cannot_be_read_is_a_finding_and_the_rest_goes_on(self, world: World) -> None:
        await world.apply(POD)
        await world.spoil()
        objects, findings = await world.view.snapshot()
        assert list(objects) == [POD]
        assert len(findings) == 1

    async def test_a_change_is_told_once(self, world: World) -> None:
        assert await world.view.changed()
        await world.view.snapshot()
        assert not await world.view.changed()
        await world.apply(POD)
        assert await world.view.changed()
        assert not await world.view.changed()
        await world.remove(POD)
        assert await world.view.changed()

    async def test_a_snapshot_takes_the_change_in(self, world: World) -> None:
        await world.view.snapshot()
        await world.apply(POD)
        await world.view.snapshot()
        assert not await world.view.changed()
