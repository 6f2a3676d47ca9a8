// SPDX-License-Identifier: Apache-2.0
// blas_library.hpp - libcublasLt, loaded at run time.
//
// The plugin does not link cuBLASLt: it has half a gigabyte, and decoding does not need it. It is
// taken from the first of: the file that the environment variable FRT_CUBLASLT names; what the
// loader finds as libcublasLt.so.13 (which is also the copy another part of the process has loaded
// already, such as PyTorch's) or libcublasLt.so; the toolkits at CUDA_HOME, CUDA_PATH and
// /usr/local/cuda.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string>

namespace frt::cuda {

class BlasLibrary {
 public:
  // Throws frt::Error(FRT_ERR_UNSUPPORTED): what was tried, and what to do.  [setup]
  BlasLibrary();

  const std::string& path() const noexcept { return path_; }
  std::size_t version() const noexcept { return version_; }  // 130100 for 13.1.0

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algo_set = nullptr;

 private:
  std::string path_;
  std::size_t version_ = 0;
};

// "cuBLASLt 13.1.0", or "no cuBLASLt". Loads the library when it is first asked.  [setup]
std::string blas_library_text();

}  // namespace frt::cuda
