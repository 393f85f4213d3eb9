"""Watches HAProxy or nginx, and takes servers out of their backends or gives them weights."""
