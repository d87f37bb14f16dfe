"""MindCluster's files of fault codes and rules, read as the component reads them that they are made for.

The one rule: every entry of a file gets a verdict, and what its component would skip or refuse is named, never lost.
"""

from agent.wire.mindcluster.entries import Entry, Foreign, Verdict
from agent.wire.mindcluster.files import COMPONENTS, read_foreign
from agent.wire.mindcluster.texts import kept_rules, policy_texts

__all__ = ["COMPONENTS", "Entry", "Foreign", "Verdict", "kept_rules", "policy_texts", "read_foreign"]
