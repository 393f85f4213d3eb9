"""An agent that works towards goals and remembers (spec goals): a bundle of ordinary plugins.

The algorithms are plain functions over the shapes in `boyd.plugins.goals.state`. The state is one
document per session and a graph, both in Redis through `ctx.state` and `ctx.graph`.
"""
