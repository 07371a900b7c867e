"""How fast the doors are, side by side with others on one server: `python -m benchmarks`, or `make bench`."""
