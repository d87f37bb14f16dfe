"""The command `fault-agent`: one module per group of verbs; each prints for people, and JSON with --json."""
