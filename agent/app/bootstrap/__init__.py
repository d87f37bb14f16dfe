"""Puts the parts together: the one room that names adapters.

The one rule: nothing is opened or started on import; each builder makes what it is asked for and nothing else.
`common` and `solo` are given here; `node`, `coordinator` and `topics` are imported where a verb needs them, because
the node role must never load a Kubernetes client.
"""

from agent.app.bootstrap.common import (
    AUDIT,
    LETTERS,
    MANAGER,
    STATE,
    border_of,
    limits_of,
    load_policy_at,
    meaning_of,
    policy_files,
    wall_clock,
    wishes_of,
)
from agent.app.bootstrap.folder import read_evidence, read_picture
from agent.app.bootstrap.policies import (
    export_policy,
    policy_folder,
    read_mindcluster,
    read_seen,
    recorded_day,
    write_policy,
)
from agent.app.bootstrap.ranktables import ClusterObjects, TableText, read_objects, read_tables
from agent.app.bootstrap.solo import Audience, SoloOrder, prepare_demo, replay_solo, run_solo, scenario

__all__ = [
    "ClusterObjects",
    "AUDIT",
    "LETTERS",
    "MANAGER",
    "STATE",
    "Audience",
    "SoloOrder",
    "TableText",
    "border_of",
    "export_policy",
    "limits_of",
    "load_policy_at",
    "meaning_of",
    "policy_files",
    "policy_folder",
    "prepare_demo",
    "read_audit",
    "read_mindcluster",
    "read_seen",
    "read_evidence",
    "read_objects",
    "read_picture",
    "read_tables",
    "recorded_day",
    "replay_solo",
    "run_solo",
    "scenario",
    "wall_clock",
    "wishes_of",
    "write_policy",
]
