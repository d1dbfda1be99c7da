"""What forwards and drafts cost, and what formulas make of it."""
