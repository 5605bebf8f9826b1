"""`python -m baker`."""

from baker.cli import main

if __name__ == "__main__":
    main()
