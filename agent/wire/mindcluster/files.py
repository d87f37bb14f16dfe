"""Which of MindCluster's files a file is, and what its component makes of it.

The one rule: nothing raises, whatever the bytes are; a file that its component would refuse says why.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.errors import BadInput
from agent.wire.mindcluster.entries import Foreign
from agent.wire.mindcluster.goread import parse
from agent.wire.mindcluster.rules import customization, relation_timeouts, relations
from agent.wire.mindcluster.tables import chip_table, node_table, public_table, switch_table

_Reader = Callable[[Any, str], Foreign]

READERS: Final[Mapping[str, tuple[str, str, _Reader]]] = {
    "faultCode.json": ("device-plugin", "keeps what it has, or takes its image's file", chip_table),
    "SwitchFaultCode.json": ("device-plugin", "keeps what it has, or takes its image's file", switch_table),
    "faultCustomization.json": ("device-plugin", "drops all rules over time and takes its image's file", customization),
    "NodeDConfiguration.json": ("NodeD", "keeps what it has", node_table),
    "publicFaultConfiguration.json": ("ClusterD", "takes its built-in file after three tries", public_table),
    "publicCustomization.json": ("ClusterD", "takes its built-in file after three tries", public_table),
    "relationFaultCustomization.json": ("ClusterD", "runs without relation rules", relations),
    "faultDuration.json": ("ClusterD", "gives no relation code any time", relation_timeouts),
}
"""File name -> its component, what that does with a file that it refuses, and the reader."""

COMPONENTS: Final[Mapping[str, str]] = {name: component for name, (component, _, _) in READERS.items()}


def read_foreign(name: str, data: bytes) -> Foreign:
    """A file of MindCluster's by its name (a key of COMPONENTS), with a verdict for each of its entries."""
    component, instead, read = READERS[name]
    try:
        return read(parse(data), name)
    except BadInput as error:
        return Foreign(name, component, f"{error.reason}; {component} refuses the whole file and {instead}")
