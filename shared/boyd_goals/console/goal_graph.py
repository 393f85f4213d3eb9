"""Graphs of goals and of what is known about them: the places of nodes, for SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from boyd.models import Triple
from boyd_goals.state import Goal

#: The size of a node and of the gaps between nodes, in pixels.
WIDTH, HEIGHT = 210, 44
_RIGHT, _BELOW = 90, 14
#: The most nodes of a graph, and characters of a label.
_MOST = 60
_LABEL = 28
#: The state of nodes that are not goals.
SYMBOL = "symbol"

#: A symbol and the facts that begin with it.
Around = tuple[str, Sequence[Triple]]


@dataclass(frozen=True)
class GraphNode:
    """A goal or a symbol; `x` and `y` are its upper left corner, `full` its whole text."""

    id: str
    x: int
    y: int
    label: str
    full: str
    state: str

    @property
    def left(self) -> tuple[int, int]:
        """The place where lines end."""
        return self.x, self.y + HEIGHT // 2

    @property
    def right(self) -> tuple[int, int]:
        """The place where lines begin."""
        return self.x + WIDTH, self.y + HEIGHT // 2


@dataclass(frozen=True)
class GraphEdge:
    """A line between two nodes, from left to right; *label* is the predicate of a fact."""

    path: str
    label: str
    x: int
    y: int


@dataclass
class NodeGraph:
    """A graph in columns.

    Attributes:
        omitted: nodes that are not drawn, because there are too many.
    """

    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[GraphEdge] = field(default_factory=list)
    omitted: int = 0

    @property
    def width(self) -> int:
        """Of the whole picture."""
        return max((node.x for node in self.nodes), default=0) + WIDTH + 4

    @property
    def height(self) -> int:
        """Of the whole picture."""
        return max((node.y for node in self.nodes), default=0) + HEIGHT + 4

    def add(self, id: str, column: int, row: int, text: str, state: str) -> GraphNode:
        """Add a node."""
        short = text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
        x, y = 2 + column * (WIDTH + _RIGHT), 2 + row * (HEIGHT + _BELOW)
        self.nodes.append(GraphNode(id, x, y, short, text, state))
        return self.nodes[-1]

    def connect(self, one: GraphNode, other: GraphNode, label: str = "") -> None:
        """Draw a line from *one* to *other*, which is further right."""
        (x, y), (to_x, to_y) = one.right, other.left
        half = (x + to_x) // 2
        path = f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"
        self.edges.append(GraphEdge(path, label, to_x - 4, to_y - 5))


def tree_of(goals: Sequence[Goal]) -> NodeGraph:
    """The goals that have parts, with their parts: parents left, parts right."""
    known = {goal.id: goal for goal in goals}
    roots = [goal for goal in goals if goal.parent not in known and goal.children]
    graph = NodeGraph()
    row = 0
    for root in roots:
        row = _add_tree(graph, known, root, 0, row, None)
    return graph


def _add_tree(
    graph: NodeGraph,
    known: Mapping[str, Goal],
    goal: Goal,
    column: int,
    row: int,
    parent: GraphNode | None,
) -> int:
    """Add a goal with its parts from *row* on; returns the next free row."""
    if len(graph.nodes) >= _MOST:
        graph.omitted += 1
        return row
    node = graph.add(goal.id, column, row, goal.description, goal.status)
    if parent is not None:
        graph.connect(parent, node)
    after = row
    for id in goal.children:
        if id in known:
            after = _add_tree(graph, known, known[id], column + 1, after, node)
    return max(after, row + 1)


def surroundings_of(goal: Goal, parent: Goal | None, around: Iterable[Around]) -> NodeGraph:
    """A goal between its parent, and symbols with the objects of their facts."""
    graph, column, row = NodeGraph(), int(parent is not None), 0
    centre = graph.add(goal.id, column, 0, goal.description, goal.status)
    if parent is not None:
        above = graph.add(parent.id, 0, 0, parent.description, parent.status)
        graph.connect(above, centre)
    for symbol, facts in around:
        node = graph.add(symbol, column + 1, row, symbol, SYMBOL)
        graph.connect(centre, node)
        for fact in facts:
            if len(graph.nodes) >= _MOST:
                graph.omitted += 1
                continue
            graph.connect(
                node, graph.add(fact.object, column + 2, row, fact.object, SYMBOL), fact.predicate
            )
            row += 1
        row += not facts
    return graph
