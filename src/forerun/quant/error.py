"""How far a format's values are from the ones they stand for."""

from torch import Tensor


def relative(values: Tensor, reference: Tensor) -> float:
    """Root mean square of the difference over that of the reference; 0 for two zeros, infinite for one."""
    off = float((values.double() - reference.double()).square().sum())
    size = float(reference.double().square().sum())
    return (off / size) ** 0.5 if size else (float("inf") if off else 0.0)


def worst_row(values: Tensor, reference: Tensor) -> float:
    """The largest `relative` of any row of two matrices [N, K]; rows of zeros in the reference are left out."""
    off = (values.double() - reference.double()).square().sum(-1)
    size = reference.double().square().sum(-1)
    kept = size > 0
    return float((off[kept] / size[kept]).max().sqrt()) if bool(kept.any()) else 0.0
