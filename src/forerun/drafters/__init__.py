"""Drafters guess what comes next and the target decides. One file each, imported when its name is asked for."""

from forerun.drafters.names import DRAFTERS, Entry, drafter_entry

__all__ = ["DRAFTERS", "Entry", "drafter_entry"]
