"""EAGLE-1 and EAGLE-3 heads as drafters, chains or dynamic trees (Li et al. 2401.15077, 2406.16858, 2503.01840).

EAGLE-2 is EAGLE-1's head with a tree that grows where the head is sure: here that is any plan with a width.
"""

from __future__ import annotations

from forerun.drafters.recurrent import LevelOptions, RecurrentDrafter


class EagleDrafter(RecurrentDrafter):
    """EAGLE-1: reads what comes out of the target's final norm, imitates it, and speaks through the target's head."""

    name = "eagle"
    Options = LevelOptions


class Eagle3Drafter(RecurrentDrafter):
    """EAGLE-3: reads three of the target's layers and has a vocabulary's end of its own."""

    name = "eagle3"
    Options = LevelOptions
