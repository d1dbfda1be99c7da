"""What models of other people raise on a cache, mask or position that they do not know.

A trial of such a model runs code that we have never seen, so these are all that Python raises where a call does not
fit; errors of memory, of imports and of the user are not among them and pass.
"""

FAULTS = (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError, NotImplementedError)
