// SPDX-License-Identifier: Apache-2.0
// Finding libcublasLt. The library stays loaded until the process ends: it keeps state of the
// device that must not be torn down before the CUDA runtime itself.
#include "blas_library.hpp"

#include <dlfcn.h>
#include <frt/base.h>

#include <cstdlib>
#include <frt/error.hpp>
#include <vector>

namespace frt::cuda {
namespace {

// 12.9 is the first with the scale modes of FP8 blocks; the structures are those of 13.
constexpr std::size_t kOldestVersion = 120900;

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* chosen = std::getenv("FRT_CUBLASLT"); chosen && *chosen) {
    paths.emplace_back(chosen);
    return paths;
  }
  paths = {"libcublasLt.so.13", "libcublasLt.so"};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable); root && *root) {
      paths.push_back(std::string(root) + "/lib64/libcublasLt.so.13");
      paths.push_back(std::string(root) + "/lib/libcublasLt.so.13");
    }
  }
  paths.emplace_back("/usr/local/cuda/lib64/libcublasLt.so.13");
  paths.emplace_back("/usr/local/cuda-13/lib64/libcublasLt.so.13");
  return paths;
}

// Where the loader found it.
std::string path_of(const void* symbol, const std::string& fallback) {
  Dl_info info{};
  return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : fallback;
}

}  // namespace

BlasLibrary::BlasLibrary() {
  std::string tried;
  void* library = nullptr;
  for (const std::string& path : candidates()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) {
      path_ = path;
      break;
    }
    tried += (tried.empty() ? "" : ", ") + path;
  }
  const std::string fix =
      "; install cuBLAS 13 (the CUDA toolkit or the Python package nvidia-cublas) and put its "
      "folder on LD_LIBRARY_PATH, or let FRT_CUBLASLT name the file";
  if (!library) {
    throw Error(FRT_ERR_UNSUPPORTED, "cuBLASLt is not installed, tried " + tried + fix);
  }
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) {
      throw Error(FRT_ERR_UNSUPPORTED, path_ + " has no function " + name + fix);
    }
  };
  bind(create, "cublasLtCreate");
  bind(destroy, "cublasLtDestroy");
  bind(get_version, "cublasLtGetVersion");
  bind(matmul, "cublasLtMatmul");
  bind(desc_create, "cublasLtMatmulDescCreate");
  bind(desc_destroy, "cublasLtMatmulDescDestroy");
  bind(desc_set, "cublasLtMatmulDescSetAttribute");
  bind(layout_create, "cublasLtMatrixLayoutCreate");
  bind(layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(preference_create, "cublasLtMatmulPreferenceCreate");
  bind(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(algo_check, "cublasLtMatmulAlgoCheck");
  bind(algo_set, "cublasLtMatmulAlgoConfigSetAttribute");
  path_ = path_of(reinterpret_cast<const void*>(create), path_);
  version_ = get_version();
  if (version_ < kOldestVersion) {
    throw Error(FRT_ERR_UNSUPPORTED, path_ + " is cuBLASLt " + std::to_string(version_) +
                                         ", expected at least " + std::to_string(kOldestVersion) +
                                         fix);
  }
}

std::string blas_library_text() {
  static const std::string text = [] {
    try {
      const std::size_t version = BlasLibrary().version();
      return "cuBLASLt " + std::to_string(version / 10000) + "." +
             std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
    } catch (const Error&) {
      return std::string("no cuBLASLt");
    }
  }();
  return text;
}

}  // namespace frt::cuda
