"""`python -m fabric` is the command line."""

from fabric.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
