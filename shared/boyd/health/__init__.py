"""The health of a deployment: a snapshot of it, and the checks of `boyd doctor`."""
