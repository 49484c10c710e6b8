"""Backends: what differs from one accelerator to the next."""
