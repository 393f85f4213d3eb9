"""Traces: spans built from what Redis keeps, and their export by OTLP.

No message carries a context. All ids follow from names of work, so that any process gives the same
span the same id, however often and in whatever process it is built.
"""
