"""Distributes tests over processes: those that wait and those that compute run side by side."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Tests below this folder compute and share a process by file; all others mostly wait.
COMPUTING = "tests/unit/"


#: Files whose tests share something that takes long to start.
SHARING = (
    "tests/integration/test_up.py",
    "tests/faults/test_shifted_hosts.py",
    "tests/connections/test_queues.py",
    "tests/integration/test_production.py",
)


#: Tests below this folder share one process: several browsers would leave no time to others.
BROWSING = "tests/browser/"


#: Files with tests that take longest: they come first, so that nothing else waits for them.
FIRST = (
    BROWSING,
    *SHARING,
    "tests/integration/test_small_model.py",
    "tests/faults/test_soak.py",
    "tests/integration/test_traces.py",
    "tests/integration/test_replay.py",
    "tests/integration/test_tutorial.py",
    "tests/integration/test_all_or_nothing.py",
    "tests/integration/test_refused_commands.py",
    "tests/integration/test_api_guide.py",
    "tests/integration/test_acl.py",
    "tests/integration/test_contract.py",
    "tests/integration/test_shell.py",
    "tests/integration/test_goals.py",
    "tests/integration/test_example_investigate.py",
)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of those files first, in all processes alike."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


class MixedScheduling(LoadScopeScheduling):
    """Gives tests that wait to every process but the last few, which begin with those that compute.

    When one kind is used up, all processes share what is left of the other, in its order.
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # The order of the files counts here: those that wait come first.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        """All in browsers; a file that computes; a single test that waits: it may take a minute."""
        if nodeid.startswith(BROWSING):
            return BROWSING
        return nodeid.partition("::")[0] if nodeid.startswith((COMPUTING, *SHARING)) else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        last = next(reversed(self.workqueue))
        if self._computes(node) and last.startswith(COMPUTING):
            self.workqueue.move_to_end(last, last=False)
        super()._assign_work_unit(node)

    def _computes(self, node: WorkerController) -> bool:
        number = int(node.gateway.id.removeprefix("gw"))
        return number % self.numnodes >= self.numnodes - max(1, self.numnodes // 3)


class Parallel:
    """Makes pytest-xdist distribute tests that way."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LoadScopeScheduling:
        """Replace the scheduling that `--dist` names."""
        return MixedScheduling(config, log)
