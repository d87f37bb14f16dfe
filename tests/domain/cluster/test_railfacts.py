"""Facts around a rail question, as objects and reports tell them: seen through the answer that follows from them.

Job `demo` on the documented A3 table, as in test_rails.py; asked is about device 0 of node n0 unless said otherwise.
"""

from collections.abc import Mapping, Sequence

import pytest
from a3cluster import QUICK_ENV, a3_pod, the_a3
from rig import Disk, Rig

LINK = "81078603"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
STATED = ";".join(f"{name}={value}" for name, value in QUICK_ENV.items())
SCRIPT = ("bash", "train.sh")
"""May export anything, so the pod's spec does not show all."""


def cluster(
    *,
    env: Mapping[str, str] | None = None,
    of: Mapping[int, Mapping[str, str]] | None = None,
    command: Sequence[str] = ("python", "train.py"),
    annotations: Mapping[str, str] | None = None,
    split: bool = False,
) -> Rig:
    """The job with one pod on each of its four nodes; `of` is laid over the environment of single pods, `split` gives
    the dies of n0 to two pods, even ones and odd ones.
    """
    others = [one for one in the_a3(labels=LABELS, annotations=annotations) if one["kind"] != "Pod"]
    pods = []
    for number in range(4):
        parts = ((0, 2), (1, 3)) if split and number == 0 else ((0, 1, 2, 3),)
        for part, devices in enumerate(parts):
            one = a3_pod(
                number,
                labels=LABELS,
                devices=devices,
                command=command,
                env={
                    **(QUICK_ENV if env is None else env),
                    **(of or {}).get(number, {}),
                    **(of or {}).get(part * 10, {}),
                },
            )
            one["metadata"]["name"] += f"-{part}"
            one["metadata"]["uid"] += f"-{part}"
            pods.append(one)
    return Rig([*others, *pods], {}, Disk())


def up(rig: Rig, at: float, nodes: Sequence[int] = range(4), **links: str) -> None:
    for number in nodes:
        rig.probe(f"n{number}", at, **{"d0": "up", "d1": "up", "d2": "up", "d3": "up", **links})


async def answered(rig: Rig) -> list[str]:
    """What was said of the rails at last, a line each."""
    await rig.run()
    return [
        one.detail for one in rig.decisions if str(one.reason).startswith("RAIL_") and "flap until" not in one.detail
    ]


async def asked(rig: Rig) -> str:
    """Links seen up, die 0 of n0 fails and stays down: the answer."""
    up(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(60)
    (answer,) = await answered(rig)
    return answer


# --- HCCL variables ---------------------------------------------------------------------------------------------------


async def test_variables_that_a_script_may_set_are_unknown_and_not_off() -> None:
    answer = await asked(cluster(env={}, command=SCRIPT))
    assert answer.startswith("rule 10 ENV_UNKNOWN: n0: ")


async def test_who_the_peers_are_hangs_on_a_variable_too_and_is_not_guessed() -> None:
    hidden = await asked(cluster(command=SCRIPT))
    unseen = "HCCL_INTER_HCCS_DISABLE, ASCEND_RT_VISIBLE_DEVICES cannot be seen"
    assert hidden.startswith("rule 10 ENV_UNKNOWN: " + "; ".join(f"{node}: {unseen}" for node in ("n0", "n2", "n3")))
    wrong = await asked(cluster(of={2: {"HCCL_INTER_HCCS_DISABLE": "maybe"}}))
    assert wrong.startswith("rule 10 ENV_INVALID: n2: HCCL_INTER_HCCS_DISABLE: 'maybe' is neither TRUE nor FALSE")


async def test_what_the_job_states_stands_in_for_what_its_pods_do_not_show() -> None:
    answer = await asked(cluster(env={}, command=SCRIPT, annotations={"fault-agent/hccl-env": STATED}))
    assert answer.startswith("rule 28 BORROW: ")


async def test_a_statement_that_leaves_the_retry_out_says_that_it_is_off() -> None:
    stated = {"fault-agent/hccl-env": "HCCL_OP_EXPANSION_MODE=AI_CPU;HCCL_RDMA_TIMEOUT=18"}
    answer = await asked(cluster(env={}, command=SCRIPT, annotations=stated))
    assert answer.startswith("rule 11 RETRY_L2_OFF: ")


async def test_a_statement_that_cannot_be_read_states_nothing() -> None:
    rig = cluster(env={}, command=SCRIPT, annotations={"fault-agent/hccl-env": STATED + ";HCCL_OP_RETRY=1"})
    assert (await asked(rig)).startswith("rule 10 ENV_UNKNOWN: ")


async def test_nodes_of_a_plan_whose_variables_differ_are_refused() -> None:
    answer = await asked(cluster(of={2: {"HCCL_OP_RETRY_PARAMS": "MaxCnt:1,HoldTime:5000,IntervalTime:1000"}}))
    assert answer.startswith("rule 13 ENV_MISMATCH: HCCL_OP_RETRY_PARAMS differs between n0 and n2")


async def test_pods_on_one_node_whose_variables_differ_are_refused() -> None:
    answer = await asked(cluster(split=True, of={10: {"HCCL_RDMA_TIMEOUT": "19"}}))
    assert answer.startswith("rule 13 ENV_MISMATCH: HCCL_RDMA_TIMEOUT differs between the job's pods on n0")


async def test_of_two_pods_on_one_node_the_one_that_shows_nothing_counts() -> None:
    rig = cluster(split=True, of={10: {"HCCL_OP_RETRY_ENABLE": "L9:1"}})
    assert (await asked(rig)).startswith("rule 10 ENV_INVALID: n0: HCCL_OP_RETRY_ENABLE: entry 'L9:1'")


# --- what a process sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("0,1,2,3", "rule 28 BORROW: "),
        ("0,2,3", "rule 18 BACKUP_NOT_VISIBLE: rank 0 (n0 device 0): its process does not see device 1"),
        ("0,1,x", "rule 18 BACKUP_NOT_VISIBLE: rank 0 (n0 device 0): which devices its process sees is not known"),
        ("0,1,4", "rule 18 BACKUP_NOT_VISIBLE: rank 0 (n0 device 0): which devices its process sees is not known"),
    ],
    ids=["all", "not the pair", "garbled", "a place it has not"],
)
async def test_the_other_die_must_be_known_to_be_seen(text: str, answer: str) -> None:
    told = await asked(cluster(of={0: {"ASCEND_RT_VISIBLE_DEVICES": text}}))
    assert told.startswith(answer)


async def test_what_a_process_sees_is_unknown_where_a_script_may_narrow_it_and_all_where_it_is_visibly_unset() -> None:
    shown = {**QUICK_ENV, "HCCL_INTER_HCCS_DISABLE": "false"}
    hidden = await asked(cluster(env=shown, command=SCRIPT))
    unseen = "; ".join(f"{node}: ASCEND_RT_VISIBLE_DEVICES cannot be seen" for node in ("n0", "n2", "n3"))
    assert hidden.startswith(f"rule 10 ENV_UNKNOWN: {unseen}. State the HCCL variables in the pod spec or ")
    assert (await asked(cluster(env=shown))).startswith("rule 28 BORROW: ")
    stated = {"fault-agent/hccl-env": "HCCL_OP_EXPANSION_MODE=AI_CPU"}
    assert (await asked(cluster(env=shown, command=SCRIPT, annotations=stated))).startswith("rule 28 BORROW: ")
    narrowed = {"fault-agent/hccl-env": "ASCEND_RT_VISIBLE_DEVICES=0,2"}
    told = await asked(cluster(env=shown, command=SCRIPT, annotations=narrowed))
    assert told.startswith("rule 18 BACKUP_NOT_VISIBLE: rank 0 (n0 device 0): its process does not see device 1")


async def test_a_die_that_only_another_pod_of_the_job_sees_is_no_backup() -> None:
    told = await asked(cluster(split=True))
    assert told.startswith("rule 18 BACKUP_NOT_VISIBLE: rank 0 (n0 device 0): its process does not see device 1")


# --- links ------------------------------------------------------------------------------------------------------------


async def test_a_link_fault_that_is_active_holds_its_die_down_however_long_ago_it_began() -> None:
    rig = cluster()
    rig.fault(LINK, 1, node="n0", device=1)
    up(rig, 190, d1="?")
    rig.fault(LINK, 200, node="n0", device=0)
    rig.tick(260)
    answers = await answered(rig)
    assert answers[-1].startswith("rule 21 BACKUP_LINK_DOWN: rank 0 (n0 device 0): device 1 is down too")


async def test_a_look_that_is_too_old_is_unknown() -> None:
    rig = cluster()
    up(rig, 0)
    rig.fault(LINK, 55, node="n0", device=0)
    rig.tick(120)
    (answer,) = await answered(rig)
    assert answer.startswith("rule 22 BACKUP_LINK_UNKNOWN: ")
