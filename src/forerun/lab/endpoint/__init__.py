"""`lab endpoint`: the same prompts against any server that speaks OpenAI's protocol."""

from forerun.lab.endpoint.show import view

__all__ = ["view"]
