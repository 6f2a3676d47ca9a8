// SPDX-License-Identifier: Apache-2.0
// blas_timing.hpp - what timing a product needs: inputs, a clock, work recorded to be repeated.
// Failures are states, not exceptions: a product that cannot be timed takes the library's first
// choice.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace frt::cuda {

// Device memory of `bytes`, filled with numbers of about 1: products run faster on zeros.
class TimingBuffer {
 public:
  TimingBuffer(std::size_t bytes, std::size_t element, cudaStream_t stream) {
    if (cudaMalloc(&memory_, bytes) != cudaSuccess) {
      cudaGetLastError();
      memory_ = nullptr;
      return;
    }
    std::vector<uint32_t> pattern(std::size_t{1} << 18);
    uint32_t state = 1;
    for (uint32_t& word : pattern) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      // Random sign and mantissa, and exponents near 0: bf16 0x3f80 to 0x3fff, e4m3 0x30 to 0x3f.
      word = element == 2 ? (state & 0x807f807fu) | 0x3f803f80u
                          : ((state >> 3) & 0x8f8f8f8fu) | 0x30303030u;
    }
    std::size_t filled = std::min(bytes, pattern.size() * sizeof(uint32_t));
    bool good = cudaMemcpyAsync(memory_, pattern.data(), filled, cudaMemcpyHostToDevice, stream) ==
                cudaSuccess;
    while (good && filled < bytes) {
      const std::size_t more = std::min(filled, bytes - filled);
      good = cudaMemcpyAsync(static_cast<char*>(memory_) + filled, memory_, more,
                             cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
      filled += more;
    }
    good_ = cudaStreamSynchronize(stream) == cudaSuccess && good;
  }
  ~TimingBuffer() {
    if (memory_) cudaFree(memory_);
  }
  TimingBuffer(const TimingBuffer&) = delete;
  TimingBuffer& operator=(const TimingBuffer&) = delete;

  bool good() const { return good_; }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
  bool good_ = false;
};

// A stream and two events.
struct Clock {
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  bool good;
  Clock() {
    good = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
           cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess;
  }
  ~Clock() {
    if (stop) cudaEventDestroy(stop);
    if (start) cudaEventDestroy(start);
    if (stream) cudaStreamDestroy(stream);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
};

// Work of one stream, recorded.
struct Recording {
  Recording() = default;
  Recording(Recording&& other) noexcept : exec(std::exchange(other.exec, nullptr)) {}
  Recording& operator=(Recording&&) = delete;
  ~Recording() { drop(); }

  // In place of what there was; false, and nothing there, where `work` or the recording fails.
  template <class Work>
  bool record(cudaStream_t stream, const Work& work) {
    drop();
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) != cudaSuccess) return false;
    const bool good = work();
    cudaGraph_t graph = nullptr;
    const bool ended = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph;
    if (good && ended && cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) exec = nullptr;
    if (graph) cudaGraphDestroy(graph);
    return exec != nullptr;
  }
  void drop() {
    if (exec) cudaGraphExecDestroy(exec);
    exec = nullptr;
  }

  cudaGraphExec_t exec = nullptr;
};

}  // namespace frt::cuda
