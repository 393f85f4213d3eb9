"""The model loop: what an investigation says, hears and may do next, as plain functions.

Nothing here is imported unless an agent has a model configured. The steps that workers take are in
`boyd.runtime.investigated`, the state is in `boyd.store.investigations`.
"""
