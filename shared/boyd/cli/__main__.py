"""`python -m boyd.cli` is `boyd`."""

from boyd.cli import main

main()
