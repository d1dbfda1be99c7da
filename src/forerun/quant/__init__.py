"""The arithmetic of the weight formats: floats to codes and scales, and back. No files, no layouts."""
