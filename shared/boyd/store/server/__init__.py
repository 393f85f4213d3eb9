"""The connection to the Redis server or cluster, and the runner of scripts."""
