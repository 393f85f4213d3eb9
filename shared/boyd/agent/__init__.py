"""An agent file, compiled: its settings, plugins, rules, windows and procedures.

The names below are imported when they are first used: plugins use the conditions, and must not
import the agent that uses them.
"""

TYPE_CHECKING = False  # `typing` takes long to import

if TYPE_CHECKING:
    from boyd.agent.agent import Agent, AgentSettings, agent_from_file, load_agent, load_agents

__all__ = ["Agent", "AgentSettings", "agent_from_file", "load_agent", "load_agents"]


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name in __all__:
        from boyd.agent import agent

        return getattr(agent, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
