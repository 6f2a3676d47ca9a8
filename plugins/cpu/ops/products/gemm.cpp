// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <dnnl.hpp>
#include <frt/error.hpp>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

// Of the OpenMP runtime that oneDNN stands on; declared here because <omp.h> belongs to a compiler.
extern "C" int omp_get_max_threads(void);
extern "C" void omp_set_num_threads(int threads);

namespace frt::cpu {
namespace {

constexpr std::array<int64_t, 3> kBlocks = {kGemmRows, 64, kGemmBlock};

// Makes the calling thread one that never starts OpenMP threads, while it lives.
class OneThread {
 public:
  OneThread() noexcept : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// oneDNN 2.x writes through what malloc returns without a look at it, and so ends the process where
// memory has run out. The objects of a primitive, generated code included, take less than this.
void require_memory() {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  void* room = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    throw Error(FRT_ERR_OUT_OF_MEMORY,
                "there is not enough memory for a product by oneDNN; end other programs, or raise "
                "the limit of this one (ulimit -v)");
  }
  ::munmap(room, kBytes);
}

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// What one worker needs to run one primitive: memory objects whose pointers are set per run.
struct Slot {
  dnnl::memory x, weights, out, scratchpad;
  std::array<dnnl_exec_arg_t, 4> args;

  explicit Slot(const dnnl::matmul::primitive_desc& descriptor)
      : x(descriptor.src_desc(), cpu_engine(), nullptr),
        weights(descriptor.weights_desc(), cpu_engine(), nullptr),
        out(descriptor.dst_desc(), cpu_engine(), nullptr),
        scratchpad(descriptor.scratchpad_desc(), cpu_engine(), nullptr),
        args{{{DNNL_ARG_SRC, x.get()},
              {DNNL_ARG_WEIGHTS, weights.get()},
              {DNNL_ARG_DST, out.get()},
              {DNNL_ARG_SCRATCHPAD, scratchpad.get()}}} {}
};

struct BlockPrimitive {
  int64_t rows;
  dnnl::matmul primitive;
  std::vector<Slot> slots;  // one per worker
};

}  // namespace

std::string gemm_library() {
  const dnnl_version_t& version = *dnnl::version();
  char text[64];
  std::snprintf(text, sizeof(text), "oneDNN %d.%d.%d isa 0x%x", version.major, version.minor,
                version.patch, static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  return text;
}

struct Gemm::Impl {
  int64_t tile = 0;
  std::size_t scratchpad_bytes = 0;
  std::vector<BlockPrimitive> blocks;  // rising sizes
  std::vector<dnnl::stream> streams;   // one per worker
};

Gemm::Gemm(frt_dtype dtype, int64_t rows, int64_t cols, int64_t x_stride, int64_t tile, int workers)
    : impl_(std::make_unique<Impl>()) {
  using dnnl::memory;
  require_memory();
  const OneThread one_thread;
  const auto type = dtype == FRT_DTYPE_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
  impl_->tile = tile;
  try {
    for (const int64_t block : kBlocks) {
      if (block > rows) break;
      require_memory();
      const memory::desc x({block, cols}, type, memory::dims{x_stride, 1});
      const memory::desc weights({cols, tile}, type, memory::dims{1, cols});
      const memory::desc out({block, tile}, memory::data_type::f32, memory::dims{tile, 1});
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(x, weights, out), attributes,
                                                    cpu_engine());
      impl_->scratchpad_bytes =
          std::max(impl_->scratchpad_bytes, descriptor.scratchpad_desc().get_size());
      BlockPrimitive primitive{block, dnnl::matmul(descriptor), {}};
      primitive.slots.reserve(static_cast<std::size_t>(workers));
      for (int i = 0; i < workers; ++i) primitive.slots.emplace_back(descriptor);
      impl_->blocks.push_back(std::move(primitive));
    }
    for (int i = 0; i < workers; ++i) impl_->streams.emplace_back(cpu_engine());
  } catch (const dnnl::error& error) {
    const bool memory = error.status == dnnl_out_of_memory;
    throw Error(
        memory ? FRT_ERR_OUT_OF_MEMORY : FRT_ERR_UNSUPPORTED,
        "oneDNN refuses a product of " + std::to_string(cols) + " columns: " + error.what());
  }
}

Gemm::~Gemm() = default;

std::size_t Gemm::scratchpad_bytes() const noexcept {
  return impl_->scratchpad_bytes;
}

// The largest block that fits what is left; or the next larger one if at most a quarter of it is
// wasted. At the end of the rows, a block that begins early and computes some rows again.
Gemm::Block Gemm::block(int64_t row, int64_t active, int64_t rows) const noexcept {
  const int64_t left = active - row;
  int64_t size = impl_->blocks.front().rows;
  for (const BlockPrimitive& candidate : impl_->blocks) {
    if (left * 4 >= candidate.rows * 3) size = candidate.rows;
  }
  return {std::min(row, rows - size), size};
}

void Gemm::run(int worker, int64_t block_rows, const void* x, const void* weights, float* out,
               void* scratchpad) noexcept {
  const OneThread one_thread;
  if (run_primitive(worker, block_rows, x, weights, out, scratchpad)) return;
  std::fill_n(out, block_rows * impl_->tile, std::numeric_limits<float>::quiet_NaN());
}

// oneDNN allocates with operator new.
bool Gemm::run_primitive(int worker, int64_t block_rows, const void* x, const void* weights,
                         float* out, void* scratchpad) noexcept try {
  bool done = false;
  for (BlockPrimitive& block : impl_->blocks) {
    if (block.rows != block_rows) continue;
    const auto index = static_cast<std::size_t>(worker);
    const Slot& slot = block.slots[index];
    // oneDNN takes inputs as mutable pointers and does not write to them.
    const bool set =
        dnnl_memory_set_data_handle(slot.x.get(), const_cast<void*>(x)) == dnnl_success &&
        dnnl_memory_set_data_handle(slot.weights.get(), const_cast<void*>(weights)) ==
            dnnl_success &&
        dnnl_memory_set_data_handle(slot.out.get(), out) == dnnl_success &&
        dnnl_memory_set_data_handle(slot.scratchpad.get(), scratchpad) == dnnl_success;
    done = set && dnnl_primitive_execute(block.primitive.get(), impl_->streams[index].get(),
                                         static_cast<int>(slot.args.size()),
                                         slot.args.data()) == dnnl_success;
  }
  return done;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace frt::cpu
