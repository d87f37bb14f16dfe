"""Relation rules of a policy file: what is taken, and each mistake with its line."""

import pytest

from agent.domain.policy import Policy
from agent.domain.vocab import Millis
from agent.errors import BadPolicy
from agent.wire.policyfile import load_policy


def policy(text: str) -> Policy:
    return load_policy({"rules.yaml": f"version: 1\n{text}".encode()})


def test_a_rule_and_its_time_out_are_taken() -> None:
    found = policy(
        "FaultRelation:\n"
        '  - TriggerFault: "8c1f860b"\n'
        '    RelationFaults: ["81078603", "[0x08520003,na,L2,na]"]\n'
        "    FaultStrategy: Separate\n"
        "FaultRelationTimeout:\n"
        '  - {FaultCode: "81078603", FaultType: faultDevice, TimeOutInterval: 300}\n'
        '  - {FaultCode: "[0x08520003,na,L2,na]", FaultType: faultSwitch, TimeOutInterval: 0}\n'
    )
    (rule,) = found.relations
    assert (rule.trigger, rule.relations, rule.strategy, rule.place) == (
        "8C1F860B",
        ("81078603", "[0x08520003,na,L2,na]"),
        "Separate",
        "rules.yaml:3",
    )
    assert found.relation_timeouts == {"81078603": Millis(300_000), "[0x08520003,na,L2,na]": Millis(0)}
    assert found.digest != Policy().digest


RULE = 'TriggerFault: "8C1F860B", RelationFaults: ["81078603"], FaultStrategy: Separate'
WAIT = 'FaultCode: "81078603", FaultType: faultDevice, TimeOutInterval: 300'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"FaultRelation:\n  - {{{RULE}, More: 1}}", "More"),
        ('FaultRelation:\n  - {TriggerFault: "8C1F860B"}', "a relation rule has no RelationFaults"),
        (f"FaultRelation:\n  - {{{RULE.replace('Separate', 'Isolate')}}}", "FaultStrategy"),
        (f"FaultRelation:\n  - {{{RULE.replace('8C1F860B', 'xyz')}}}", "'xyz' is no chip code"),
        (f"FaultRelation:\n  - {{{RULE.replace('8C1F860B', '[a,b,c,d]')}}}", "is no chip code"),
        (f"FaultRelation:\n  - {{{RULE.replace('[', '[]  #')}", "not YAML"),
        (f"FaultRelation:\n  - {{{RULE.replace('81078603', '[a,b]')}}}", "is no code of a switch"),
        (f"FaultRelation:\n  - {{{RULE}}}\n  - {{{RULE}}}", "already has a relation rule, rules.yaml:3"),
        (f"FaultRelationTimeout:\n  - {{{WAIT}}}\n  - {{{WAIT}}}", "already has a relation time-out"),
        (f"FaultRelationTimeout:\n  - {{{WAIT.replace('faultDevice', 'faultSwitch')}}}", "is faultDevice, not"),
        (f"FaultRelationTimeout:\n  - {{{WAIT.replace('300', '86401')}}}", "TimeOutInterval (seconds)"),
        (f"FaultRelationTimeout:\n  - {{{WAIT.replace('300', '-1')}}}", "TimeOutInterval (seconds)"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        policy(text)
    assert said in str(caught.value)
    assert "rules.yaml:" in str(caught.value)
