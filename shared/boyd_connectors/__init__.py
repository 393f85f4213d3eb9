"""Plugins for systems that others run: databases, clusters, balancers, hosts."""
