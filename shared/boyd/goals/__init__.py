"""An agent that works towards goals and remembers (spec goals): a bundle of ordinary plugins.

The algorithms are plain functions over the shapes in `boyd.goals.shapes`; the state is one document
for each session and a graph, both in Redis through `ctx.state` and `ctx.graph`.
"""
