// SPDX-License-Identifier: Apache-2.0
// A library with the names of cuBLASLt's functions and no more.
#include <cstddef>

#pragma GCC visibility push(default)

#define FRT_FAKE(name)    \
  extern "C" int name() { \
    return 1;             \
  }

extern "C" std::size_t cublasLtGetVersion() {
  return 130102;
}
FRT_FAKE(cublasLtCreate)
FRT_FAKE(cublasLtDestroy)
FRT_FAKE(cublasLtMatmul)
FRT_FAKE(cublasLtMatmulDescCreate)
FRT_FAKE(cublasLtMatmulDescDestroy)
FRT_FAKE(cublasLtMatmulDescSetAttribute)
FRT_FAKE(cublasLtMatrixLayoutCreate)
FRT_FAKE(cublasLtMatrixLayoutDestroy)
FRT_FAKE(cublasLtMatmulPreferenceCreate)
FRT_FAKE(cublasLtMatmulPreferenceDestroy)
FRT_FAKE(cublasLtMatmulPreferenceSetAttribute)
FRT_FAKE(cublasLtMatmulAlgoGetHeuristic)
FRT_FAKE(cublasLtMatmulAlgoCheck)
FRT_FAKE(cublasLtMatmulAlgoConfigSetAttribute)
#pragma GCC visibility pop
