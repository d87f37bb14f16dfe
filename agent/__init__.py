"""The Ascend fault agent: device fault events in, the right ConfigMaps out, each decision with its reason."""

__version__ = "0.1.0"
