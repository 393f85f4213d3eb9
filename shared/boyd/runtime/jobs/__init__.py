"""The jobs of workers besides iterations, with a handler for each kind."""
