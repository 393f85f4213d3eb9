"""Test helpers for plugin authors: an agent in this process, and a scripted model.

    agent = Agent("test", plugins=[DiskMonitor(threshold=80)])
    result = Lab(agent).run()
    assert result.decision.action == "disk-monitor:clean"

`Lab` needs `boyd[testing]`; the scripted model (`boyd.testing.model_server`) does not. Names are
therefore imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boyd.testing.lab import TESTER, Lab, ManualDispatcher
    from boyd.testing.model_server import ScriptedModel

__all__ = ["TESTER", "Lab", "ManualDispatcher", "ScriptedModel"]

_LAB = ("TESTER", "ManualDispatcher", "Lab")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{'lab' if name in _LAB else 'model_server'}")
    return getattr(module, name)
