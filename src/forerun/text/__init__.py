"""Text to token ids and back: tokenizers of both formats, chat templates, and text as it streams."""
