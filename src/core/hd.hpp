#pragma once

// Code that g++ compiles for CPU ranks and nvcc for GPU kernels.
#ifdef __CUDACC__
#define MOELANE_HD __host__ __device__
#else
#define MOELANE_HD
#endif
