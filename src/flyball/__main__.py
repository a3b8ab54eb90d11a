"""`python -m flyball` is `flyball`."""

from .cli import main

main()
