"""The index over pods: what is put in is found, what is taken out leaves nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.jobs import Pod
from agent.domain.jobs.pods import PodIndex
from agent.domain.vocab import JobId, NodeName

N1, N2 = NodeName("n1"), NodeName("n2")

pods = st.builds(
    Pod,
    namespace=st.just("train"),
    name=st.sampled_from(["a", "b", "c"]),
    uid=st.sampled_from(["1", "2"]),
    node=st.sampled_from([None, N1, N2]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    group=st.sampled_from(["", "g", "h"]),
    devices=st.sets(st.integers(0, 3)).map(lambda found: tuple(sorted(found))),
)


def test_a_pod_is_found_by_name_job_node_and_device() -> None:
    index = PodIndex()
    pod = Pod("train", "a", "1", node=N1, phase="Running", group="g", devices=(0, 2))
    index.put(pod)
    assert index.get(("train", "a")) == pod
    assert list(index.of_job(JobId("train/g"))) == [pod]
    assert list(index.on_node(N1)) == [pod]
    assert [list(index.holders(N1, device)) for device in (0, 1, 2)] == [[pod], [], [pod]]


def test_taking_out_a_name_that_is_not_there_is_nothing() -> None:
    assert PodIndex().take(("train", "a")) is None


@settings(max_examples=60)
@given(st.lists(pods, max_size=12))
def test_after_any_puts_and_takes_the_index_says_what_the_held_pods_say(changes: list[Pod]) -> None:
    index = PodIndex()
    held: dict[str, Pod] = {}
    for pod in changes:
        index.take(("train", pod.name))
        index.put(pod)
        held[pod.name] = pod
    for node in (N1, N2):
        assert {p.name for p in index.on_node(node)} == {p.name for p in held.values() if p.node == node}
        for device in range(4):
            holding = {p.name for p in held.values() if p.node == node and device in p.bound}
            assert {p.name for p in index.holders(node, device)} == holding
            crowd = [[p.name for p in crowd] for at, d, crowd in index.crowded() if (at, d) == (node, device)]
            assert crowd == ([sorted(holding)] if len(holding) > 1 else [])
    for name in held:
        index.take(("train", name))
    assert list(index.crowded()) == []
    assert dict(index.all()) == {}
    assert all(not index.holders(node, device) for node in (N1, N2) for device in range(4))
