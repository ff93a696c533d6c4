"""`python -m treelabel` is the command line."""

from treelabel.cli import main

if __name__ == "__main__":
    main()
