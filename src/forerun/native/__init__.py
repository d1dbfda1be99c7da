"""The compiled runtime: packed weights, and one call per forward. `ext` is the only door to the extension itself."""
