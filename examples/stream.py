"""Five lines to stream an answer: python examples/stream.py"""

import forerun

engine = forerun.load("smollm2", drafter="ngram")
for event in engine.stream(engine.chat("Why is the sky blue?"), max_tokens=64):
    print(event.text, end="", flush=True)
print()
