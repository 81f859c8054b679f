"""The interface of Intel Gaudi's package, which no public index has, written down from Habana's public sources.

Names and signatures are those of release 1.19 (github.com/HabanaAI/gaudi-pytorch-bridge, `python_packages/`); every
module here names its file there. Functions do what that source says where a device class depends on it, no more.
A test that needs Gaudi puts the folder above this package on `sys.path`; no other name is answered.
"""
