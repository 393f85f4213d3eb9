"""The parts of `boyd up`: a private Redis server and a supervisor of child processes.

All of it runs in the main thread of a dedicated process. This package imports nothing, so that
reading `state_folder` does not load a Redis client.
"""
