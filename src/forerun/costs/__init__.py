"""What parts of a step cost: measured curves, prices made of them, and the defaults that come with forerun."""
