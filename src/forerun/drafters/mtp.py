"""Multi-token prediction: DeepSeek-V3's extra module, used again for each further token (2412.19437)."""

from __future__ import annotations

from forerun.drafters.recurrent import LevelOptions, RecurrentDrafter


class MTPDrafter(RecurrentDrafter):
    """One decoder layer after the target's last, fed with its own states from the second token on."""

    name = "mtp"
    Options = LevelOptions
