"""Gathers facts of hosts with Ansible, looks for drift, and runs playbooks."""
