"""One thing is changed, all else is kept: batch, context, temperature, formats, targets."""
