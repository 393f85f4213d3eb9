"""Settings of processes and models, and the files they come from."""
