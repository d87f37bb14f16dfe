"""Findings for the log: each once, a part of the jobs a turn, and a memory that stays small."""

from kubebuilders import a_group

from agent.app.remarks import AT_ONCE, KEPT, Remarks
from agent.domain.jobs import PodGroup
from agent.domain.jobs.book import JobBook
from agent.domain.vocab import JobId
from agent.wire.kubeobjects import parse_object


def test_a_finding_is_told_once_while_it_is_remembered() -> None:
    said: list[str] = []
    remarks = Remarks(said.append)
    for finding in ("a", "b", "a"):
        remarks.tell(finding)
    assert said == ["a", "b"]
    for number in range(KEPT):
        remarks.tell(str(number))
    remarks.tell("a")
    assert said.count("a") == 2


def test_of_many_jobs_some_are_judged_a_turn_and_each_change_once() -> None:
    book = JobBook()
    names = [f"j{number}" for number in range(AT_ONCE + 5)]
    for name in names:
        group = parse_object(a_group(name, owner="", labels={"tor-affinity": "near"}))
        assert isinstance(group, PodGroup)
        book.apply_group(group)
    said: list[str] = []
    remarks = Remarks(said.append)
    remarks.touched(JobId(f"train/{name}") for name in names)
    remarks.judge(book)
    assert len(said) == AT_ONCE
    remarks.judge(book)
    remarks.judge(book)
    told = "tor-affinity: 'near' is not one of normal-schema, large-model-schema, null"
    # That it has no owner is no matter of its labels.
    assert sorted(said) == sorted(f"LABEL_BAD PodGroup train/{name}: {told}" for name in names)
