"""What a job states of its own processes, where no object shows it: HCCL variables, the version of CANN.

The one rule: a statement is taken whole or not at all; one that cannot be read leaves all of it unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from agent.domain.hccl import VARIABLES, HcclEnv, env_from

HCCL_ENV: Final = "fault-agent/hccl-env"
CANN: Final = "fault-agent/cann-version"
_VERSION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9A-Za-z.]{1,20})?")


@dataclass(frozen=True, slots=True)
class Stated:
    """Annotations of the job; `env` None: nothing is stated."""

    env: tuple[tuple[str, str], ...] | None = None
    """fault-agent/hccl-env: the variables of hccl.VARIABLES as its processes have them. What it leaves out is unset."""
    cann: str = ""
    """fault-agent/cann-version, such as 8.3.RC1; defaults of variables hang on it. Empty: not known."""
    problems: tuple[str, ...] = ()
    """What could not be read, and why."""

    def seen(self, shown: Mapping[str, str] | None, complete: bool) -> HcclEnv:
        """The environment of a pod whose spec shows `shown`, all of it if `complete`; the spec goes before the
        statement.
        """
        if self.env is None:
            return env_from(shown, visible=shown is not None and complete, cann=self.cann)
        return env_from({**dict(self.env), **(shown or {})}, visible=True, cann=self.cann)


def stated_by(annotations: Mapping[str, str]) -> Stated:
    """Read the two annotations of a job."""
    env, problem = _assignments(annotations.get(HCCL_ENV))
    problems = [f"{HCCL_ENV}: {problem}"] if problem else []
    cann = annotations.get(CANN, "")
    if cann and not is_version(cann):
        problems.append(f"{CANN}: {cann[:40]!r} is no version such as 8.3.RC1")
        cann = ""
    return Stated(env, cann, tuple(problems))


def is_version(text: str) -> bool:
    """Whether this is a version of CANN, such as 8.3.RC1."""
    return _VERSION.fullmatch(text) is not None


def _assignments(text: str | None) -> tuple[tuple[tuple[str, str], ...] | None, str]:
    """NAME=value pairs with a semicolon or a line end between them, or why there are none."""
    if text is None:
        return None, ""
    found: dict[str, str] = {}
    for piece in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        name, equals, value = piece.partition("=")
        if not equals:
            return None, f"{piece[:60]!r} is no NAME=value; pairs are parted by a semicolon"
        if name not in VARIABLES:
            near = get_close_matches(name[:60], VARIABLES, n=1)
            known = f"did you mean {near[0]}?" if near else "known: " + ", ".join(VARIABLES)
            return None, f"{name[:60]!r} is no variable of it; {known}"
        if name in found:
            return None, f"{name} stands twice"
        found[name] = value
    return tuple(sorted(found.items())), ""
