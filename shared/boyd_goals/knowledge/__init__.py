"""Algorithms on a graph of facts: plain functions over `boyd.plugin.context.Graph`.

They do not write to the graph, ignore facts about the agent itself (`agent:…`), and query whole
frontiers at once, never node by node.
"""
