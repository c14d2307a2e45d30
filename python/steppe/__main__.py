"""`python -m steppe` runs the command."""

from steppe.cli import main

main()
