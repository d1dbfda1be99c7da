"""Shapes of draft trees without models: named ones, searched ones, and the one that pays best."""
