"""From a few answers to a recommendation."""
