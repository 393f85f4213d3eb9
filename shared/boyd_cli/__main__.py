"""`python -m boyd_cli` is `boyd`."""

from boyd_cli import main

main()
