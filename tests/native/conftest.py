"""Puts `nets.py` on the path, which tests of the native runtime share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
