"""Investigations: conversations of a model with tools, as plain functions over their log.

Imported only when an agent has a model. `boyd.runtime.investigations` executes what these functions
decide; `boyd.store.investigations` keeps the log.
"""
