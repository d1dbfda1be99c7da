"""What models of other people raise on a cache, mask or position that they do not know."""

FAULTS = (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError)
