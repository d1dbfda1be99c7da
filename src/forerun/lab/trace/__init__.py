"""One generation, step by step, on one page: what was guessed, what stood, and why not."""
