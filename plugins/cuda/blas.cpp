// SPDX-License-Identifier: Apache-2.0
// Products through cuBLASLt. The library thinks in columns: what is (rows, inputs) row-major here
// is an (inputs, rows) matrix there. So y^T = W x^T is asked for, with W as the transposed first
// operand, the form for which it has its fastest kernels (the only one for FP8).
#include "blas.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <frt/error.hpp>
#include <optional>
#include <vector>

#include "backend_device.hpp"
#include "blas_parts.hpp"
#include "blas_timing.hpp"
#include "stream.hpp"

namespace frt::cuda {
namespace {

constexpr int kCandidates = 8;         // of a list of the heuristics
constexpr int kSamples = 7;            // per candidate; the median counts
constexpr double kSampleMicros = 200;  // work per sample, at least one product
constexpr double kClearlyFaster = 1.03;
// Inputs and outputs for timing; larger products take the heuristics' first choice.
constexpr std::size_t kTimingBytes = std::size_t{1} << 30;
constexpr std::size_t kComparedBytes = std::size_t{1} << 20;  // of two algorithms' results

const char* name_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "wrong architecture";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "internal error";
  }
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(status == CUBLAS_STATUS_ALLOC_FAILED ? FRT_ERR_OUT_OF_MEMORY : FRT_ERR_DEVICE,
              std::string("cuBLASLt: ") + what + ": " + name_of(status) + " (" +
                  std::to_string(static_cast<int>(status)) + ")");
}

bool is_fp8(BlasTypes types) {
  return types != BlasTypes::kBf16;
}
std::size_t input_bytes(BlasTypes types) {
  return is_fp8(types) ? 1 : 2;
}
std::size_t output_bytes(const BlasShape& shape) {
  return shape.y_dtype == FRT_DTYPE_F32 ? 4 : 2;
}

// Rows that share an algorithm: prompts come in all lengths.
int32_t rows_class(int32_t rows) {
  const auto up = std::bit_ceil(static_cast<uint32_t>(std::max(rows, 32)));
  return static_cast<int32_t>(std::min(up, uint32_t{1} << 30));
}

// Rows of a class share their bits, too.
int32_t parts_of(const BlasShape& shape) {
  return blas_parts(rows_class(shape.rows), shape.outputs, shape.inputs);
}

std::string key_of(const BlasShape& shape) {
  const char* types = shape.types == BlasTypes::kBf16         ? "bf16"
                      : shape.types == BlasTypes::kFp8Block   ? "fp8-block"
                      : shape.types == BlasTypes::kFp8Channel ? "fp8-channel"
                                                              : "fp8-tensor";
  return std::string(types) + (shape.y_dtype == FRT_DTYPE_F32 ? "-f32" : "-bf16") +
         (shape.accumulate ? "-add" : "") + ":" + std::to_string(rows_class(shape.rows)) + "x" +
         std::to_string(shape.outputs) + "x" + std::to_string(shape.inputs) + "/" +
         std::to_string(parts_of(shape));
}

// What most have; of equally many, what comes first.
std::optional<uint64_t> most_frequent(const std::vector<std::optional<uint64_t>>& values) {
  std::optional<uint64_t> best;
  std::ptrdiff_t most = 0;
  for (const std::optional<uint64_t>& value : values) {
    const std::ptrdiff_t count = value ? std::count(values.begin(), values.end(), value) : 0;
    if (count > most) {
      best = value;
      most = count;
    }
  }
  return best;
}

// While it lives, this thread may allocate, wait and load code although streams are captured: what
// it does is on a stream that is not.
class OutsideCapture {
 public:
  OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

Blas& Device::blas() {
  BackendDevice& self = behind(*this);
  const std::lock_guard<std::mutex> lock(self.blas_mutex_);
  if (!self.blas_) {
    const OutsideCapture outside;
    self.blas_ = std::make_shared<Blas>(*this);
  }
  return *self.blas_;
}

// The descriptors of one shape, and the algorithm that is pinned for it.
struct Blas::Plan {
  explicit Plan(const BlasLibrary& functions) : library(functions) {}
  ~Plan() {
    if (y) library.layout_destroy(y);
    if (x) library.layout_destroy(x);
    if (weight) library.layout_destroy(weight);
    if (product) library.desc_destroy(product);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(library.desc_set(product, attribute, &value, sizeof(value)), "describing a product");
  }

  cublasStatus_t run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& chosen,
                     const BlasOperands& operands, bool accumulate, cudaStream_t stream) {
    const float beta = accumulate ? 1.0f : 0.0f;
    if (scaled) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.weight_scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.x_scale);
    }
    return library.matmul(handle, product, &operands.factor, operands.weight, weight, operands.x, x,
                          &beta, operands.y, y, operands.y, y, &chosen, operands.workspace,
                          kWorkspaceBytes, stream);
  }

  const BlasLibrary& library;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  bool scaled = false;
  bool usable = false;  // there is an algorithm
  cublasLtMatmulAlgo_t algorithm{};
};

Blas::Blas(Device& device) : device_(device) {
  check(library_.create(&handle_), "starting");
  cudaDeviceProp properties{};
  device_.check(cudaGetDeviceProperties(&properties, device_.ordinal()), "reading the device");
  choices_ =
      std::make_unique<BlasChoices>(properties.name, library_.version(),
                                    [&](const std::string& text) { device_.warn(text.c_str()); });
}

Blas::~Blas() {
  plans_.clear();
  library_.destroy(handle_);
}

Blas* Blas::find(Device& device) {
  if (!device.has(feature::kLibrary)) return nullptr;
  static std::atomic<bool> missing{false};
  if (missing.load(std::memory_order_relaxed)) return nullptr;
  try {
    return &device.blas();
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_UNSUPPORTED) throw;
    if (!missing.exchange(true)) {
      device.warn(
          (std::string(error.what()) + "; until then products of many rows are slower").c_str());
    }
    return nullptr;
  }
}

bool Blas::offers(const BlasShape& shape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const OutsideCapture outside;
  return plan(shape).usable;
}

bool Blas::multiply(Stream& stream, const BlasShape& shape, const BlasOperands& operands) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const OutsideCapture outside;  // the library may load code
  Plan& known = plan(shape);
  if (!known.usable) return false;
  check(known.run(handle_, known.algorithm, operands, shape.accumulate, stream.native()),
        "submitting a product");
  return true;
}

Blas::Plan& Blas::plan(const BlasShape& shape) {
  std::unique_ptr<Plan>& slot = plans_[shape];
  if (!slot) {
    auto made = describe(shape);
    choose(*made, shape);
    slot = std::move(made);
  }
  return *slot;
}

std::unique_ptr<Blas::Plan> Blas::describe(const BlasShape& shape) {
  auto made = std::make_unique<Plan>(library_);
  check(library_.desc_create(&made->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
  made->set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (is_fp8(shape.types) && shape.types != BlasTypes::kFp8Tensor) {
    const bool block = shape.types == BlasTypes::kFp8Block;
    made->scaled = true;
    made->set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, block
                                                     ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                                     : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    made->set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, block
                                                     ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                     : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    // There are no algorithms without scales; run() sets the real ones.
    alignas(16) static const float some_scale[4] = {};
    made->set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(some_scale));
    made->set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(some_scale));
  }
  const cudaDataType_t type = is_fp8(shape.types) ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const cudaDataType_t y_type = shape.y_dtype == FRT_DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
  const auto layout = [&](cublasLtMatrixLayout_t& into, cudaDataType_t element, int64_t height,
                          int64_t width, int64_t stride) {
    check(library_.layout_create(&into, element, static_cast<uint64_t>(height),
                                 static_cast<uint64_t>(width), stride),
          "describing a matrix");
  };
  layout(made->weight, type, shape.inputs, shape.outputs, shape.inputs);
  layout(made->x, type, shape.inputs, shape.rows, shape.x_stride);
  layout(made->y, y_type, shape.outputs, shape.rows, shape.y_stride);
  return made;
}

bool Blas::accepts(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  return library_.algo_check(handle_, plan.product, plan.weight, plan.x, plan.y, plan.y, &algorithm,
                             &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

// The heuristics' list for a shape, best guess first. `reductions`: how partial sums may be added.
std::vector<cublasLtMatmulAlgo_t> Blas::heuristics(const Plan& plan, uint32_t reductions) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(library_.preference_create(&preference), "asking for algorithms");
  const std::size_t workspace = kWorkspaceBytes;
  const uint32_t alignment = 16;
  library_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                          sizeof(workspace));
  library_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                          sizeof(reductions));
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    library_.preference_set(preference, which, &alignment, sizeof(alignment));
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int count = 0;
  const cublasStatus_t status =
      library_.heuristic(handle_, plan.product, plan.weight, plan.x, plan.y, plan.y, preference,
                         kCandidates, results.data(), &count);
  library_.preference_destroy(preference);
  std::vector<cublasLtMatmulAlgo_t> found;
  if (status != CUBLAS_STATUS_SUCCESS) return found;  // none for these types on this device
  for (int i = 0; i < count; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) found.push_back(results[i].algo);
  }
  return found;
}

// The algorithms that add in the number of parts of the shape, best guess first. Where the library
// has none that can be split for these types, those that add in one.
std::vector<cublasLtMatmulAlgo_t> Blas::candidates(const Plan& plan, const BlasShape& shape) {
  constexpr uint32_t kWhole = CUBLASLT_REDUCTION_SCHEME_NONE;
  // Partial sums are added in a fixed order, and in f32.
  constexpr uint32_t kInOrder = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (!may_have_parts(rows_class(shape.rows), shape.outputs)) return heuristics(plan, kWhole);
  std::vector<cublasLtMatmulAlgo_t> listed = heuristics(plan, kInOrder);
  const std::vector<cublasLtMatmulAlgo_t> whole = heuristics(plan, kWhole);
  listed.insert(listed.end(), whole.begin(), whole.end());
  const int32_t wanted = parts_of(shape);
  for (const int32_t parts : {wanted, 1}) {
    std::vector<cublasLtMatmulAlgo_t> found;
    const uint32_t reduction = parts == 1 ? kWhole : kInOrder;
    for (cublasLtMatmulAlgo_t algorithm : listed) {
      if (library_.algo_set(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof(parts)) !=
              CUBLAS_STATUS_SUCCESS ||
          library_.algo_set(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                            sizeof(reduction)) != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      const bool known = std::any_of(found.begin(), found.end(), [&](const auto& other) {
        return std::memcmp(&other, &algorithm, sizeof(other)) == 0;
      });
      if (!known && accepts(plan, algorithm)) found.push_back(algorithm);
    }
    if (!found.empty() || parts == 1) return found;
  }
  return {};
}

std::vector<cublasLtMatmulAlgo_t> Blas::algorithms(const BlasShape& shape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const OutsideCapture outside;
  return candidates(*describe(shape), shape);
}

void Blas::multiply(Stream& stream, const BlasShape& shape, const BlasOperands& operands,
                    const cublasLtMatmulAlgo_t& algorithm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const OutsideCapture outside;
  check(describe(shape)->run(handle_, algorithm, operands, shape.accumulate, stream.native()),
        "submitting a product");
}

// Pins an algorithm: what the file says, or the fastest, or the heuristics' first.
void Blas::choose(Plan& plan, const BlasShape& shape) {
  const std::string key = key_of(shape);
  const BlasChoices::Choice* choice = choices_->find(key);
  if (!choice) {
    BlasChoices::Choice fresh{};
    if (measure(shape, fresh)) {
      choices_->add(key, fresh);
      choice = choices_->find(key);
    }
  }
  if (choice) {
    static_assert(sizeof(plan.algorithm) == sizeof(choice->algorithm));
    std::memcpy(&plan.algorithm, choice->algorithm.data(), sizeof(plan.algorithm));
    if (accepts(plan, plan.algorithm)) {
      plan.usable = true;
      return;
    }
  }
  const std::vector<cublasLtMatmulAlgo_t> found = candidates(plan, shape);
  if (found.empty()) return;
  plan.algorithm = found.front();
  plan.usable = true;
}

// Times the candidates for the class of rows of `shape`. False where it cannot be done: not enough
// memory, or no candidates.
bool Blas::measure(const BlasShape& shape, BlasChoices::Choice& choice) {
  BlasShape timed = shape;
  timed.rows = rows_class(shape.rows);
  timed.x_stride = timed.inputs;
  timed.y_stride = (timed.outputs + 7) / 8 * 8;
  const std::size_t element = input_bytes(timed.types);
  const auto bytes = [](int64_t height, int64_t width, std::size_t size) {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * size;
  };
  const std::size_t x_bytes = bytes(timed.rows, timed.inputs, element);
  const std::size_t weight_bytes = bytes(timed.outputs, timed.inputs, element);
  const std::size_t y_bytes = bytes(timed.rows, timed.y_stride, output_bytes(timed));
  // More than enough for either kind of scales.
  const std::size_t scale_bytes = is_fp8(timed.types) ? bytes(std::max(timed.rows, timed.outputs),
                                                              timed.inputs / 128 + 8, sizeof(float))
                                                      : 0;
  if (x_bytes + weight_bytes + y_bytes + 2 * scale_bytes > kTimingBytes) return false;

  const auto plan = describe(timed);
  const std::vector<cublasLtMatmulAlgo_t> found = candidates(*plan, timed);
  if (found.empty()) return false;
  const Clock clock;
  if (!clock.good) return false;
  const TimingBuffer x(x_bytes, element, clock.stream);
  const TimingBuffer weight(weight_bytes, element, clock.stream);
  const TimingBuffer y(y_bytes, 2, clock.stream);
  const TimingBuffer scales(std::max<std::size_t>(2 * scale_bytes, 16), 2, clock.stream);
  const TimingBuffer workspace(kWorkspaceBytes, 2, clock.stream);
  for (const TimingBuffer* one : {&x, &weight, &y, &scales, &workspace}) {
    if (!one->good()) return false;
  }
  const BlasOperands operands{
      x.get(),      static_cast<const float*>(scales.get()),
      weight.get(), static_cast<const float*>(scales.get()) + scale_bytes / sizeof(float),
      y.get(),      workspace.get()};

  // Recorded, because launches of small products take the host longer than the device.
  struct Entry {
    const cublasLtMatmulAlgo_t* algorithm;
    Recording recording;
    int repeats;
    std::array<double, kSamples> times;
  };
  const auto submit = [&](const cublasLtMatmulAlgo_t& algorithm, int repeats) {
    bool good = true;
    for (int i = 0; i < repeats; ++i) {
      good = good && plan->run(handle_, algorithm, operands, timed.accumulate, clock.stream) ==
                         CUBLAS_STATUS_SUCCESS;
    }
    return good;
  };
  // A hash of the head of the result, which tells: an algorithm adds in one order everywhere. None
  // where the algorithm fails.
  std::vector<uint64_t> head(std::min(y_bytes, kComparedBytes) / sizeof(uint64_t));
  const auto bits_of = [&](const cublasLtMatmulAlgo_t& algorithm) -> std::optional<uint64_t> {
    const bool good = cudaMemsetAsync(y.get(), 0, y_bytes, clock.stream) == cudaSuccess &&
                      submit(algorithm, 1) &&
                      cudaMemcpyAsync(head.data(), y.get(), head.size() * sizeof(uint64_t),
                                      cudaMemcpyDeviceToHost, clock.stream) == cudaSuccess &&
                      cudaStreamSynchronize(clock.stream) == cudaSuccess;
    if (!good) return std::nullopt;
    uint64_t bits = 0xcbf29ce484222325u;
    for (const uint64_t word : head) bits = (bits ^ word) * 0x100000001b3u;
    return bits;
  };
  // Microseconds per product.
  const auto sample = [&](const Entry& entry) {
    cudaEventRecord(clock.start, clock.stream);
    cudaGraphLaunch(entry.recording.exec, clock.stream);
    cudaEventRecord(clock.stop, clock.stream);
    device_.check(cudaEventSynchronize(clock.stop), "timing a product");
    float milliseconds = 0;
    device_.check(cudaEventElapsedTime(&milliseconds, clock.start, clock.stop), "timing a product");
    return milliseconds * 1e3 / entry.repeats;
  };
  std::vector<std::optional<uint64_t>> bits;
  for (const cublasLtMatmulAlgo_t& algorithm : found) bits.push_back(bits_of(algorithm));
  const std::optional<uint64_t> agreed = most_frequent(bits);
  if (!agreed) return false;
  std::vector<Entry> entries;
  for (const cublasLtMatmulAlgo_t& algorithm : found) {
    if (bits[static_cast<std::size_t>(&algorithm - found.data())] != agreed) continue;
    Entry entry{&algorithm, {}, 1, {}};
    for (int repeats = 1;; repeats = entry.repeats) {
      if (!entry.recording.record(clock.stream, [&] { return submit(algorithm, repeats); })) break;
      const double time = sample(entry);
      if (repeats > 1 || time > kSampleMicros / 2) break;
      entry.repeats = std::clamp(static_cast<int>(kSampleMicros / std::max(time, 1.0)), 2, 50);
    }
    if (entry.recording.exec) entries.push_back(std::move(entry));
  }
  // One of each after the other, several times: the clock falls as the chip warms, for all alike.
  for (int i = 0; i < kSamples; ++i) {
    for (Entry& entry : entries) entry.times[i] = sample(entry);
  }
  const cublasLtMatmulAlgo_t* best = nullptr;
  double best_time = 0;
  for (Entry& entry : entries) {
    std::sort(entry.times.begin(), entry.times.end());
    const double time = entry.times[kSamples / 2];
    // The first one leads; whoever follows must beat it clearly, and the leader by then at all.
    const bool first_leads = best == entries.front().algorithm;
    if (!best || time * (first_leads ? kClearlyFaster : 1.0) < best_time) {
      best = entry.algorithm;
      best_time = time;
    }
  }
  if (!best) return false;
  std::memcpy(choice.algorithm.data(), best, sizeof(*best));
  choice.microseconds = best_time;
  return true;
}

}  // namespace frt::cuda
