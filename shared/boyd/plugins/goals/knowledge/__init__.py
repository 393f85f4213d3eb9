"""What can be found out from a graph of facts: plain functions over `boyd.plugin.context.Graph`.

None of them writes to the graph, and none takes what an agent notes of itself (`agent:…`) for
knowledge (M11). They ask frontier by frontier, never node by node.
"""
