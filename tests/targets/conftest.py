"""Puts `families.py`, which tests of models and of targets share, on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "models"))
