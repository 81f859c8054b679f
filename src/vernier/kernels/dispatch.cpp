// Which copy of the kernels this processor can run, by the names that setup.py gives the copies.
//
// __builtin_cpu_supports also asks whether the operating system keeps the registers.

extern "C" const char* kernels_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
  if (avx2) return avx512 ? "avx512" : "avx2";
#endif
  return "plain";
}
