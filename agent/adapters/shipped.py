"""Files that come with the agent (policies, schemas) and policy files a person points at: bytes by name or path.

The one rule: it reads and never judges; `agent.wire.policyfile` says what is wrong with the bytes.
"""

from collections.abc import Hashable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from agent.adapters.disk import signature
from agent.errors import BadPolicy, CannotRun

_SHIPPED_SUFFIXES = (".yaml", ".json")
_POLICY_SUFFIXES = (".yaml", ".yml")
_READ_AT_MOST = 10 * 1024 * 1024 + 1
"""One byte more than a policy file may have: enough for the reader of the bytes to refuse it, however long it is."""


def read_shipped(kind: str) -> dict[str, bytes]:
    """The shipped YAML and JSON files of `policies` or `schemas`, by file name.

    A wheel carries them inside the package; an editable install finds them beside it. Raises CannotRun when neither
    place has any.
    """
    return _read_all(_place(kind))


def shipped_folder(kind: str) -> Path:
    """The folder that holds the shipped `policies` or `schemas`, for people to look into. Raises CannotRun."""
    return Path(str(_place(kind)))


def _place(kind: str) -> Traversable:
    package = files("agent")
    beside = Path(str(package)).parent
    places: list[Traversable] = [package.joinpath("_shipped", kind), beside / kind]
    for place in places:
        if place.is_dir() and any(entry.name.endswith(_SHIPPED_SUFFIXES) for entry in place.iterdir()):
            return place
    raise CannotRun(
        f"the shipped {kind} are missing: neither {places[0]} nor {places[1]} holds them",
        hint="install the package again (pip install --force-reinstall ascend-fault-agent)",
    )


def read_policy_path(path: Path | None) -> dict[str, bytes]:
    """The policy files in force: the shipped ones, each replaced by the file of the same name at `path`.

    `path` is a policy folder (as a mounted ConfigMap is one) or a single policy file; None: the shipped files alone.
    Files of the person's are keyed by their path, so that errors and explanations show where they stand.
    Raises BadPolicy when nothing is there or it cannot be read, CannotRun when the shipped files are missing.
    """
    shipped = read_shipped("policies")
    if path is None:
        return shipped
    own = _read_own(path)
    replaced = {Path(name).name for name in own}
    return {name: data for name, data in shipped.items() if name not in replaced} | own


def policy_mark(path: Path | None) -> Hashable:
    """What to compare to see that the files at a policy path may have changed: their names, and what stat says of the
    files behind links, for a mounted ConfigMap changes by one link that leads elsewhere. Never raises.
    """
    if path is None:
        return None
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else [path]
        return tuple((entry.name, signature(entry.stat())) for entry in entries if entry.suffix in _POLICY_SUFFIXES)
    except OSError as error:
        return error.errno


def _read_own(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            found = sorted(entry for entry in path.iterdir() if entry.suffix in _POLICY_SUFFIXES and entry.is_file())
        elif path.is_file():
            found = [path]
        else:
            raise BadPolicy(
                "no such policy file or folder", place=str(path), hint="give a folder with chip.yaml, rules.yaml, …"
            )
        own = {_key(entry): _read_capped(entry) for entry in found}
    except OSError as error:
        raise BadPolicy(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    if not own:
        raise BadPolicy("the folder holds no policy file", place=str(path), hint="such as chip.yaml or rules.yaml")
    return own


def _key(path: Path) -> str:
    """The path as given, with ./ before a bare name so that it cannot be taken for the shipped file of that name."""
    return path.as_posix() if "/" in path.as_posix() else f"./{path}"


def _read_all(place: Traversable) -> dict[str, bytes]:
    names = sorted(entry.name for entry in place.iterdir() if entry.name.endswith(_SHIPPED_SUFFIXES))
    return {name: place.joinpath(name).read_bytes() for name in names}


def _read_capped(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_READ_AT_MOST)
