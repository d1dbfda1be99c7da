"""Drafting heads: small networks that read a target's hidden states. Drafting with them is elsewhere."""
