"""Heads on disk: our own compact form, and those that are published, read and written."""
