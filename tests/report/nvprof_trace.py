"""A GPU trace as nvprof prints it: three kernels, a copy, and readings of clock, power and temperature."""

NVPROF = """\
==1234== NVPROF is profiling process 1234, command: python train.py
==1234== Profiling result:
"Start","Duration","Grid X","Device","Context","Stream","System","Name","Correlation_ID"
s,ms,,,,,,,
1.0,2.0,1,"Tesla V100 (0)",1,7,,"gemm",1
0.5,,,"Tesla V100 (0)",,,"900/877","[SM/Memory Clock (MHz)]",
1.5,,,"Tesla V100 (0)",,,"1500/877","[SM/Memory Clock (MHz)]",
1.6,,,"Tesla V100 (0)",,,"82091/300000","[Power/Limit (mW)]",
1.7,,,"Tesla V100 (0)",,,"43","[Temperature (C)]",
2.0,4.0,1,"Tesla V100 (0)",1,7,,"gemm",2
2.5,9.0,1,"Tesla V100 (0)",1,7,,"[CUDA memcpy HtoD]",3
2.6,0.5,1,"Tesla V100 (0)",1,7,,"small",4
"""
