"""Measurements that need only a target: what forwards cost on this machine, and how near that is to its limit."""
