"""Jobs: from the cluster's objects to bindings, ranks and labels.

The one rule: an answer follows from the objects held now. `values` are the objects, `pods` and `view` what one job
looks like, `book` the index from devices to jobs.
"""

from agent.domain.jobs.stated import Stated, stated_by
from agent.domain.jobs.values import (
    Binding,
    FaultScheduling,
    Finding,
    FindingCode,
    Job,
    JobLabels,
    Node,
    Pod,
    PodGroup,
    Product,
    RankTableFacts,
    ServerFacts,
    job_id,
    merge_annotations,
    merge_labels,
    parse_labels,
    product_of_hardware,
    product_of_labels,
    product_of_type,
    ring_size,
)
from agent.domain.jobs.view import config_name

__all__ = [
    "Binding",
    "FaultScheduling",
    "Finding",
    "FindingCode",
    "Job",
    "JobLabels",
    "Node",
    "Pod",
    "PodGroup",
    "Product",
    "RankTableFacts",
    "ServerFacts",
    "Stated",
    "config_name",
    "job_id",
    "merge_annotations",
    "merge_labels",
    "parse_labels",
    "product_of_hardware",
    "product_of_labels",
    "product_of_type",
    "ring_size",
    "stated_by",
]
