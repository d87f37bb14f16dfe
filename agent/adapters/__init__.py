"""Fillers of the ports, one third-party client or medium per file. They carry bytes and ConfigMap data, no meaning."""
