"""Job handlers: work that workers do besides iterations."""
