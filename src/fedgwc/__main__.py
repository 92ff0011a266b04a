"""`python -m fedgwc`."""

from fedgwc.cli import main

main()
