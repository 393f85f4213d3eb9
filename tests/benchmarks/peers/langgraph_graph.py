"""A graph of LangGraph in this process, without workers and without a checkpoint."""

from __future__ import annotations

import asyncio
import json
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from redis.asyncio import Redis

from benchmarks.peers import job
from benchmarks.peers.event_loop import run
from benchmarks.peers.peer import Peer

client: Any = Redis.from_url(job.URL)


class Iteration(TypedDict, total=False):
    """The state of one iteration."""

    key: str
    count: int
    seconds: float
    seen: Annotated[list[job.Seen], operator.add]
    situation: dict[str, Any]
    decision: dict[str, Any]
    results: list[Any]


class Look(TypedDict):
    """The state of an observer's node."""

    index: int
    seconds: float


def observers(state: Iteration) -> list[Send]:
    """The observers that run side by side."""
    return [
        Send("observe", Look(index=index, seconds=state["seconds"]))
        for index in range(state["count"])
    ]


async def observe(look: Look) -> Iteration:
    """See something."""
    await asyncio.sleep(look["seconds"])
    return {"seen": [job.observe(look["index"])]}


async def orient(state: Iteration) -> Iteration:
    """Understand what was seen."""
    return {"situation": job.orient(state["seen"])}


async def decide(state: Iteration) -> Iteration:
    """Choose."""
    return {"decision": job.decide(state["situation"])}


async def act(state: Iteration) -> Iteration:
    """Do it."""
    return {"results": job.act(state["decision"])}


async def complete(state: Iteration) -> Iteration:
    """Tell the one who waits."""
    await client.lpush(state["key"], json.dumps(state["results"]))
    return {}


def graph() -> Any:
    """The graph, which all iterations share."""
    state_graph = StateGraph(Iteration)
    for node in (observe, orient, decide, act, complete):
        state_graph.add_node(node.__name__, node)
    state_graph.add_conditional_edges(START, observers, ["observe"])
    for before, other in (("observe", "orient"), ("orient", "decide"), ("decide", "act")):
        state_graph.add_edge(before, other)
    state_graph.add_edge("act", "complete")
    state_graph.add_edge("complete", END)
    return state_graph.compile()


class LangGraph(Peer):
    """The graph on one event loop."""

    name = "LangGraph in process"

    def start(self) -> None:
        """Make the graph."""
        self._graph = graph()

    def begin(self, count: int, seconds: float, key: str) -> None:
        """Run the graph to its end."""
        iteration = Iteration(key=key, count=count, seconds=seconds)
        run(self._graph.ainvoke(iteration))

    def stop(self) -> None:
        """Leave the graph: nothing runs."""


PEER = LangGraph
