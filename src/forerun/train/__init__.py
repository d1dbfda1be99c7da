"""Drafting heads from nothing but the target: data that it writes itself, losses as published, measured tau."""
