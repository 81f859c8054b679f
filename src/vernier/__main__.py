"""`python -m vernier` is the same as `vernier`."""

from vernier.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
