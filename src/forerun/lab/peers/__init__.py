"""Other engines as arms and in a contest: each in a process and an environment of its own.

The files of `workers` run there, started by path, where forerun is not installed: they import nothing of ours.
"""

from forerun.lab.peers.show import view

__all__ = ["view"]
