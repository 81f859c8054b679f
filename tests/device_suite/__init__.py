"""The whole product on one device, driven as a person drives it: `python -m vernier ... --device NAME`.

VERNIER_TEST_DEVICE names the device; without it rgpu, where it is installed (`tests/rgpu.py`). `make test-device
DEVICE=cuda` runs these tests on real hardware and writes a report. Networks and images are tiny: what is tested is that
every command works there, resumes bit for bit, refuses what it cannot do, and trains to the CPU's weights.
"""
