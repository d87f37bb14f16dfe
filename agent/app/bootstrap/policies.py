"""The shipped policy files as files: where they lie, and a copy of them to edit.

The one rule: nothing that is there already is overwritten.
"""

from pathlib import Path

from agent.adapters.shipped import read_shipped, shipped_folder
from agent.errors import BadUsage, CannotRun


def policy_folder() -> Path:
    """Where the shipped policy files lie. Raises CannotRun when they are missing."""
    return shipped_folder("policies")


def export_policy(folder: Path) -> list[Path]:
    """Write the shipped policy files into a folder, made if need be; gives the files.

    Raises BadUsage when one of them is there already (then none is written), CannotRun when it cannot be written.
    """
    files = {folder / name: data for name, data in read_shipped("policies").items() if name.endswith(".yaml")}
    there = [str(path) for path in files if path.exists()]
    if there:
        raise BadUsage(f"{', '.join(there)} is there already", hint="give an empty folder; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            with path.open("xb") as file:
                file.write(data)
    except OSError as error:
        raise CannotRun(f"cannot write the policy files into {folder}: {error.strerror or error}") from error
    return list(files)
