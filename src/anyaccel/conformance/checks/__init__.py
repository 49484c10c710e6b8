"""The checks, one file per noun."""
