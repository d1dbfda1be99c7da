"""Bytes on disk to named tensors: Hugging Face folders, GGUF files, and the downloads behind both.

Everything here is bounded by the size of the file it reads and refuses what it cannot read exactly.
"""
