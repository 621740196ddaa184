// Marks functions whose arithmetic the host and GPU kernels share.
#pragma once

#ifdef __CUDACC__
#define WEFT_HD __host__ __device__
#else
#define WEFT_HD
#endif
