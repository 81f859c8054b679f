"""The contracts for outside packages."""
