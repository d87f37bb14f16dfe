"""For the whole suite: warnings are errors, blocking calls inside the loop fail, property tests are repeatable."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, core, settings

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.load_profile("house")


@pytest.hookimpl(trylast=True)  # after pytest-randomly, which has chosen or been given the seed
def pytest_configure(config: pytest.Config) -> None:
    """One seed for all: Hypothesis draws from a generator of its own, which pytest-randomly does not know."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None and config.getoption("hypothesis_seed", None) is None:
        vars(core)["global_force_seed"] = int(seed)  # what --hypothesis-seed sets


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say the seed of the random order and data at the end, also with -q, so that a red run can be had again."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"the same order and data again: --randomly-seed={seed} (make: PYTEST_ARGS=…)")


@pytest.fixture(autouse=True)
def _no_blocking_in_the_loop() -> Iterator[BlockBuster]:
    """A blocking call made by the agent's own code inside a running loop fails the test that made it."""
    with blockbuster_ctx("agent") as blocking:
        yield blocking
