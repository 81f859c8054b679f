"""What a machine, a network or a stranger may do to Vernier, one file per ground; docs/security.md has the table.

What has a home of its own is tested there: decoders in tests/fuzz, kills and disks in tests/chaos, hosts in
tests/hosts, addresses in tests/compat/test_remote.py.
"""
