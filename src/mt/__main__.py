"""`python -m mt` is the same command as `mt`."""

from mt.cli import main

if __name__ == "__main__":
    main()
