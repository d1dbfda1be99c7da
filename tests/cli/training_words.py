"""Options with which `forerun train` makes little of a tiny model."""

SMALL = ["--weights", "auto", "--width", "8", "--answer-tokens", "16", "--taps", "0,1,2"]
QUICK = ["--tokens", "900", "--steps", "4", "--measures", "1", "--batch", "256", "--draft-vocab", "150"]
