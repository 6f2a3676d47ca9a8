// SPDX-License-Identifier: Apache-2.0
// Copies between the device and pinned memory are CUDA's, or a kernel where they are a few small
// ones (small_copies.hpp). Copies from or to ordinary memory are cut into pieces that go through a
// pinned block: the host's half of the work is a task in stream order (host_task.hpp). All pieces
// use the same block, which the stream's order protects.
//
// Recording is CUDA's stream capture, in relaxed mode: scratch memory may grow meanwhile, and other
// streams and threads are not disturbed. Events are not given to CUDA while recording, so a
// recording never spreads to other streams: nodes of one recording run in order, so a wait for one
// of its own records holds already, and a wait for any other makes the recording fail.
#include "backend_stream.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <frt/error.hpp>
#include <mutex>
#include <string>

#include "backend_device.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "scratch.hpp"
#include "small_copies.hpp"
#include "status.hpp"

namespace frt::cuda {
namespace {

std::atomic<LaunchSmallCopies> launch_small{nullptr};

bool on_device(const frt_backend_copy& copy) noexcept {
  return copy.target_space != FRT_SPACE_HOST && copy.source_space != FRT_SPACE_HOST;
}

bool in_reach_of_host(frt_space space) noexcept {
  return space != FRT_SPACE_DEVICE;
}

frt_status check_copies(const frt_backend_copy* copies, uint64_t count) noexcept {
  if (count > 0 && !copies) return FRT_ERR_INVALID_ARGUMENT;
  for (uint64_t i = 0; i < count; ++i) {
    const frt_backend_copy& copy = copies[i];
    if (copy.target_space >= FRT_SPACE_COUNT || copy.source_space >= FRT_SPACE_COUNT ||
        (copy.bytes > 0 && (!copy.target || !copy.source))) {
      return FRT_ERR_INVALID_ARGUMENT;
    }
  }
  return FRT_OK;
}

// All of them, if they are few, small and on the device or in pinned memory; else none.
SmallCopies small_copies(const frt_backend_copy* copies, uint64_t count) noexcept {
  SmallCopies small{};
  for (uint64_t i = 0; i < count; ++i) {
    const frt_backend_copy& copy = copies[i];
    if (copy.bytes == 0) continue;
    if (!on_device(copy) || copy.bytes > SmallCopies::kMostBytes ||
        small.count == SmallCopies::kMost) {
      return {};
    }
    small.ranges[small.count++] = {copy.target, copy.source, static_cast<uint32_t>(copy.bytes)};
  }
  return small;
}

}  // namespace

void set_small_copies(LaunchSmallCopies launch) noexcept {
  launch_small.store(launch, std::memory_order_relaxed);
}

// What a capturing stream has been given, apart from CUDA's nodes.
struct BackendStream::Recording {
  const char* failure = nullptr;  // static text of the first refusal
  Kept kept;
};

BackendStream::BackendStream(BackendDevice& device, int32_t priority)
    : Stream(device), owned_(true), shared_(false), pool_(std::make_shared<ScratchPool>(device)) {
  device_.enter("stream_create");
  const int clamped =
      std::clamp(static_cast<int>(priority), device.greatest_priority(), device.least_priority());
  device_.check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, clamped),
                "stream_create");
  try {
    lane_ = std::make_shared<Lane>(device_, stream_);
  } catch (...) {
    cudaStreamDestroy(stream_);
    throw;
  }
}

BackendStream::BackendStream(BackendDevice& device, cudaStream_t foreign)
    : Stream(device), owned_(false), shared_(true), pool_(std::make_shared<ScratchPool>(device)) {
  stream_ = foreign;
  device_.enter("stream_wrap");
  int ordinal = -1;
  device_.check(cudaStreamGetDevice(stream_, &ordinal), "stream_wrap: is it a stream of CUDA");
  if (ordinal != device_.ordinal()) {
    throw Error(FRT_ERR_MISMATCH, "stream_wrap: the stream belongs to device " +
                                      std::to_string(ordinal) + ", not to device " +
                                      std::to_string(device_.ordinal()));
  }
  lane_ = std::make_shared<Lane>(device_, stream_);
}

BackendStream::~BackendStream() {
  capture_abort();
  device_.make_current();
  lane_.reset();
  if (owned_) cudaStreamDestroy(stream_);
  cudaGetLastError();
}

BackendStream::OperatorScope::OperatorScope(Stream& stream, const Device& kernel_device,
                                            const char* operator_name) {
  if (&stream.device() != &kernel_device) {
    throw Error(FRT_ERR_MISMATCH,
                std::string(operator_name) + ": the stream belongs to another device");
  }
  kernel_device.enter(operator_name);
}

// Memory and tasks of an operator must live as long as what it is recorded into, which only our own
// recordings see to; and a wait for an event of another stream would spread the capture to it.
void BackendStream::refuse_foreign_capture() {
  if (owned_ || recording_) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  device_.check(cudaStreamIsCapturing(stream_, &status), "looking at a wrapped stream");
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error(FRT_ERR_BAD_STATE,
              "the wrapped stream is being captured by its owner; record with capture_begin, or "
              "end that capture first");
}

// ---- scratch ------------------------------------------------------------------------------

void BackendStream::use_pool(const std::shared_ptr<ScratchPool>& pool) {
  refuse_foreign_capture();
  if (recording_) {
    auto& pools = recording_->kept.pools;
    if (std::find(pools.begin(), pools.end(), pool) == pools.end()) pools.push_back(pool);
    return;
  }
  early_reads_safe_ = false;
  const frt_status status = pool->enter(lane_, stream_);
  if (status != FRT_OK) throw Error(status, "scratch memory: ordering its users failed");
}

CoResidentLaunch::CoResidentLaunch(Stream* stream) {
  if (!stream) return;
  BackendDevice& device = behind(stream->device());
  std::unique_lock<std::mutex> lock(device.co_resident_mutex());
  behind(*stream).use_pool(device.co_resident());
  lock.release();
  device_ = &device;
}

CoResidentLaunch::~CoResidentLaunch() {
  if (device_) behind(*device_).co_resident_mutex().unlock();
}

bool Stream::early_reads_safe() const noexcept {
  return early_reads_safe_ && !behind(*this).shared_;
}

void* Stream::scratch(std::size_t bytes) {
  BackendStream& self = behind(*this);
  self.use_pool(self.pool_);
  const std::shared_ptr<Block>& block = self.pool_->reserve(bytes);
  if (self.recording_) {
    auto& blocks = self.recording_->kept.blocks;
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
  }
  return block->data() + ScratchPool::kExchangeBytes;
}

// ---- copies, fills, calls -----------------------------------------------------------------

void BackendStream::submit_task(const HostTask& task) {
  refuse_foreign_capture();
  early_reads_safe_ = false;
  auto owner = std::make_unique<HostTask>(task);
  if (recording_) {
    auto& tasks = recording_->kept.tasks;
    tasks.push_back(std::move(owner));
    device_.check(cudaLaunchHostFunc(stream_, keep_task, tasks.back().get()),
                  "work of the host in stream order");
    return;
  }
  device_.check(cudaLaunchHostFunc(stream_, drop_task, owner.get()),
                "work of the host in stream order");
  owner.release();
}

// Copies between the device and pinned memory, in whatever order CUDA likes: they do not overlap.
frt_status BackendStream::copy_batch(const frt_backend_copy* copies, uint64_t count) noexcept {
  constexpr std::size_t kBatch = 128;
  if (const SmallCopies small = small_copies(copies, count); small.count > 1 && !recording_) {
    if (const LaunchSmallCopies submit = launch_small.load(std::memory_order_relaxed)) {
      return device_.note(submit(stream_, small));
    }
  }
  // Not part of a capture, and not for the default streams.
  const bool batched = !recording_ && count > 1 && stream_ != nullptr &&
                       stream_ != cudaStreamLegacy && stream_ != cudaStreamPerThread;
  std::array<void*, kBatch> targets;
  std::array<const void*, kBatch> sources;
  std::array<std::size_t, kBatch> sizes;
  std::size_t filled = 0;
  const auto flush = [&]() noexcept -> frt_status {
    if (filled == 0) return FRT_OK;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    const cudaError_t code =
        filled == 1 ? cudaMemcpyAsync(targets[0], sources[0], sizes[0], cudaMemcpyDefault, stream_)
                    : cudaMemcpyBatchAsync(targets.data(), const_cast<void* const*>(sources.data()),
                                           sizes.data(), filled, &attributes, &first, 1, stream_);
    filled = 0;
    return device_.note(code);
  };
  for (uint64_t i = 0; i < count; ++i) {
    const frt_backend_copy& copy = copies[i];
    if (copy.bytes == 0 || !on_device(copy)) continue;
    targets[filled] = copy.target;
    sources[filled] = copy.source;
    sizes[filled] = copy.bytes;
    if (++filled == (batched ? kBatch : 1)) {
      if (const frt_status status = flush(); status != FRT_OK) return status;
    }
  }
  return flush();
}

void BackendStream::copy_staged(const frt_backend_copy& copy) {
  if (in_reach_of_host(copy.target_space) && in_reach_of_host(copy.source_space)) {
    submit_task({&device_, HostCopy{copy.target, copy.source, copy.bytes}});
    return;
  }
  use_pool(pool_);
  const std::shared_ptr<Block>& block = pool_->staging();
  if (recording_) recording_->kept.blocks.push_back(block);
  auto* target = static_cast<std::byte*>(copy.target);
  const auto* source = static_cast<const std::byte*>(copy.source);
  for (uint64_t done = 0; done < copy.bytes;) {
    const uint64_t bytes = std::min<uint64_t>(copy.bytes - done, block->bytes());
    if (copy.source_space == FRT_SPACE_HOST) {
      submit_task({&device_, HostCopy{block->data(), source + done, bytes}});
      device_.check(
          cudaMemcpyAsync(target + done, block->data(), bytes, cudaMemcpyHostToDevice, stream_),
          "copy to the device");
    } else {
      device_.check(
          cudaMemcpyAsync(block->data(), source + done, bytes, cudaMemcpyDeviceToHost, stream_),
          "copy from the device");
      submit_task({&device_, HostCopy{target + done, block->data(), bytes}});
    }
    done += bytes;
  }
}

frt_status BackendStream::copy(const frt_backend_copy* copies, uint64_t count) {
  if (const frt_status status = check_copies(copies, count); status != FRT_OK) return status;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  early_reads_safe_ = false;
  if (const frt_status status = copy_batch(copies, count); status != FRT_OK) return status;
  for (uint64_t i = 0; i < count; ++i) {
    if (copies[i].bytes > 0 && !on_device(copies[i])) copy_staged(copies[i]);
  }
  return FRT_OK;
}

namespace {

// An event that orders two streams and is given back when it is done.
class Order {
 public:
  Order() = default;
  ~Order() {
    if (event_) cudaEventDestroy(event_);
  }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  // Behind what `stream` of the current device holds.
  cudaError_t record(cudaStream_t stream) noexcept {
    const cudaError_t code = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    return code == cudaSuccess ? cudaEventRecord(event_, stream) : code;
  }
  cudaError_t hold_back(cudaStream_t stream) const noexcept {
    return cudaStreamWaitEvent(stream, event_, 0);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

frt_status BackendStream::copy_peer(void* target, BackendStream& from, const void* source,
                                    uint64_t bytes) {
  if (recording_ || from.recording_) return FRT_ERR_BAD_STATE;
  Device& source_device = from.device_;
  Order before, after;
  early_reads_safe_ = from.early_reads_safe_ = false;
  if (const frt_status status = source_device.enter(); status != FRT_OK) return status;
  from.refuse_foreign_capture();
  frt_status status = source_device.note(before.record(from.stream_));
  if (status != FRT_OK) return status;
  if ((status = device_.enter()) != FRT_OK) return status;
  refuse_foreign_capture();
  if ((status = device_.note(before.hold_back(stream_))) != FRT_OK) return status;
  status = device_.note(cudaMemcpyPeerAsync(target, device_.ordinal(), source,
                                            source_device.ordinal(), bytes, stream_));
  if (status != FRT_OK) return status;
  if ((status = device_.note(after.record(stream_))) != FRT_OK) return status;
  if ((status = source_device.enter()) != FRT_OK) return status;
  return source_device.note(after.hold_back(from.stream_));
}

frt_status BackendStream::fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value) {
  if (space >= FRT_SPACE_COUNT || (bytes > 0 && !pointer)) return FRT_ERR_INVALID_ARGUMENT;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  if (bytes == 0) return FRT_OK;
  early_reads_safe_ = false;
  if (space == FRT_SPACE_HOST) {
    submit_task({&device_, HostFill{pointer, bytes, value}});
    return FRT_OK;
  }
  return device_.note(cudaMemsetAsync(pointer, value, bytes, stream_));
}

frt_status BackendStream::call(frt_host_function function, void* user) {
  if (!function) return FRT_ERR_INVALID_ARGUMENT;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  submit_task({&device_, HostCall{function, user}});
  return FRT_OK;
}

// ---- events, executables, waiting ---------------------------------------------------------

frt_status BackendStream::refuse_in_capture(const char* what) noexcept {
  if (!recording_->failure) recording_->failure = what;
  return FRT_ERR_BAD_STATE;
}

frt_status BackendStream::record(Event& event) noexcept {
  if (&event.device() != &device_) return FRT_ERR_MISMATCH;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  if (recording_) return refuse_in_capture("an event was recorded");
  early_reads_safe_ = false;
  const frt_status status = device_.note(cudaEventRecord(event.native(), stream_));
  if (status == FRT_OK) event.set_recorded();
  return status;
}

frt_status BackendStream::wait(Event& event) noexcept {
  if (&event.device() != &device_) return FRT_ERR_MISMATCH;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  if (recording_) return refuse_in_capture("an event was waited for");
  if (!event.recorded()) return FRT_OK;
  early_reads_safe_ = false;
  return device_.note(cudaStreamWaitEvent(stream_, event.native(), 0));
}

frt_status BackendStream::launch(Exec& exec) noexcept {
  if (&exec.device() != &device_) return FRT_ERR_MISMATCH;
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  if (recording_) return refuse_in_capture("an executable was launched into the capture");
  early_reads_safe_ = false;
  BackendDevice& device = behind(device_);
  std::unique_lock<std::mutex> co_resident;
  for (const auto& pool : exec.pools()) {
    if (pool == device.co_resident())
      co_resident = std::unique_lock<std::mutex>(device.co_resident_mutex());
    if (const frt_status status = pool->enter(lane_, stream_); status != FRT_OK) return status;
  }
  return device_.note(cudaGraphLaunch(exec.native(), stream_));
}

frt_status BackendStream::sync() noexcept {
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  if (recording_) return refuse_in_capture("the capturing stream was asked to wait");
  device_.say_warnings();
  const frt_status status = device_.note(cudaStreamSynchronize(stream_));
  if (status != FRT_OK) return status;
  pool_->drop_outgrown();
  return device_.take_late();
}

// ---- capture ------------------------------------------------------------------------------

void BackendStream::capture_begin() {
  device_.enter("capture_begin");
  if (recording_) {
    throw Error(FRT_ERR_BAD_STATE, "capture_begin: this stream is capturing already");
  }
  auto recording = std::make_unique<Recording>();
  early_reads_safe_ = false;
  check(lane_->begin_capture(), "capture_begin");
  const cudaError_t code = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
  if (code != cudaSuccess) {
    lane_->end_capture();
    device_.check(code, stream_ ? "capture_begin"
                                : "capture_begin: the default stream cannot record, use another");
  }
  recording_ = std::move(recording);
}

std::unique_ptr<Exec> BackendStream::capture_end() {
  device_.make_current();
  early_reads_safe_ = false;
  if (!recording_) throw Error(FRT_ERR_BAD_STATE, "capture_end: this stream is not capturing");
  const std::unique_ptr<Recording> recording = std::move(recording_);
  cudaGraph_t graph = nullptr;
  const cudaError_t code = cudaStreamEndCapture(stream_, &graph);
  lane_->end_capture();
  device_.say_warnings();
  if (code != cudaSuccess && graph) cudaGraphDestroy(graph);
  if (recording->failure) {
    if (code == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw Error(FRT_ERR_BAD_STATE,
                std::string("capture_end: ") + recording->failure +
                    " while recording; record only kernels, copies, fills and calls");
  }
  device_.check(code, "capture_end");
  return std::make_unique<Exec>(device_, graph, std::move(recording->kept));
}

void BackendStream::capture_abort() noexcept {
  if (!recording_) return;
  device_.make_current();
  early_reads_safe_ = false;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  lane_->end_capture();
  recording_.reset();
}

}  // namespace frt::cuda
