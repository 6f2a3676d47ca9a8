// SPDX-License-Identifier: Apache-2.0
// frt.test.defect: the CPU backend with one defect, to see that the conformance cases notice it.
// FRT_TEST_DEFECT names it; unset, there is none:
//
//   an operator            computes something else: an argument that its kernel gets is changed, a
//                          row less, a token more, another factor. So the kernel does all of its
//                          work, and only its result shows the difference
//   copy_peer              runs ahead of the source's stream
//   last_error             gives the same words for ever
//   exit_aborts            as the process ends, if a stream was made
//   crash_once             in the first launch of frt.silu_mul/1, and again as a device is opened
//                          afterwards (FRT_TEST_DEFECT_FILE is made in between)
//   launch_allocates, launch_waits   what an executable's launch must not do
//   alloc_beside_work      refuses memory while a stream has work
//   wait_does_nothing      orders no stream after an event
//   fill_other             fills with another value
//   abort_keeps_recording  ends no capture that is aborted
//
// FRT_UNSUPPORTED names an operator whose launches always return FRT_ERR_UNSUPPORTED, FRT_PROMISED
// one that says before that it supports them, FRT_CONFUSED one that does so of wrong arguments,
// FRT_NARROW one that is offered for bf16 outputs alone.
//
// It can be the backend under test and the reference at the same time: a check that compares a
// backend with itself would pass.
#include <dlfcn.h>
#include <unistd.h>

#include <frt/backend.h>
#include <frt/draft/kernel_variants.h>
#include <frt/kernels.h>
#include <frt/ops/checksum.h>
#include <frt/ops/elementwise.h>
#include <frt/ops/embed.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>
#include <frt/ops/patch_embed.h>
#include <frt/ops/rows.h>
#include <frt/ops/sample.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <frt/plugin.hpp>
#include <frt/weights.hpp>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace frt::test {
namespace {

using Defect = void (*)(void* args);

template <class Args>
Args& as(void* args) {
  return *static_cast<Args*>(args);
}

const std::map<std::string, Defect>& operator_defects() {
  static const std::map<std::string, Defect> all = {
      {FRT_OP_EMBED,
       [](void* a) {
         int32_t& rows = as<frt_embed_args>(a).table.rows;
         if (rows > 1) --rows;
       }},
      {FRT_OP_SELECT_TOKENS, [](void* a) { ++as<frt_select_tokens_args>(a).ids_out; }},
      {FRT_OP_LAST_ROWS, [](void* a) { as<frt_last_rows_args>(a).sequences.rows = 1; }},
      {FRT_OP_LAG_ROWS, [](void* a) { as<frt_lag_rows_args>(a).sequences.rows = 1; }},
      {FRT_OP_STORE_ROWS, [](void* a) { as<frt_store_rows_args>(a).sequences.rows = 1; }},
      {FRT_OP_ARGMAX,
       [](void* a) {
         auto& args = as<frt_argmax_args>(a);
         if (args.width == 1) return;
         ++args.logits;
         --args.width;
       }},
      {FRT_OP_COUNT_TOKENS, [](void* a) { as<frt_count_tokens_args>(a).generated ^= 1; }},
      {FRT_OP_SAMPLE,
       [](void* a) {
         auto& args = as<frt_sample_args>(a);
         if (args.vocabulary == 1) return;
         ++args.logits;
         --args.vocabulary;
       }},
      {FRT_OP_ACCEPT_TOKENS,
       [](void* a) {
         auto& args = as<frt_accept_tokens_args>(a);
         std::swap(args.fed, args.drawn);
       }},
      {FRT_OP_CHAIN_TOKENS,
       [](void* a) {
         auto& args = as<frt_chain_tokens_args>(a);
         args.column = args.column == 0 && args.stride > 1 ? 1 : 0;
       }},
      {FRT_OP_CONVERT,
       [](void* a) {
         float& factor = as<frt_convert_args>(a).factor;
         factor = (factor == 0 ? 1 : factor) * 1.0009765625f;
       }},
      {FRT_OP_FILL_UNIFORM, [](void* a) { ++as<frt_fill_uniform_args>(a).seed; }},
      {FRT_OP_CHECKSUM,
       [](void* a) {
         auto& args = as<frt_checksum_args>(a);
         args.bytes -= std::min<uint64_t>(args.bytes, 8);
       }},
      {FRT_OP_SILU_MUL,
       [](void* a) {
         auto& args = as<frt_binary_args>(a);
         std::swap(args.a, args.b);
         std::swap(args.a_stride, args.b_stride);
       }},
      {FRT_OP_PACK_VIEWS, [](void* a) { --as<frt_pack_views_args>(a).text_rows; }},
      {FRT_OP_PATCHES, [](void* a) { as<frt_patches_args>(a).scale *= 1.02f; }},
      {FRT_OP_PATCH_EMBED,
       [](void* a) {
         auto& product = as<frt_patch_embed_args>(a).product;
         product.addend = nullptr;
         product.addend_rows = 0;
       }},
      {FRT_OP_EMBED_ROWS, [](void* a) { as<frt_embed_rows_args>(a).scale *= 1.01f; }},
      {FRT_OP_MOE_ROUTE, [](void* a) { as<frt_moe_route_args>(a).normalise ^= 1; }},
      // An expert's second tile of 128 rows is left out. The weights are kept for what is recorded.
      {FRT_OP_MOE_EXPERTS,
       [](void* a) {
         static std::deque<std::vector<float>> kept;
         auto& args = as<frt_moe_experts_args>(a);
         const auto count =
             static_cast<std::size_t>(args.rows) * static_cast<std::size_t>(args.experts_per_token);
         std::vector<float>& weights = kept.emplace_back(args.weights, args.weights + count);
         std::vector<int> assigned(static_cast<std::size_t>(args.experts));
         for (std::size_t i = 0; i < count; ++i) {
           if (++assigned.at(static_cast<std::size_t>(args.ids[i])) > 128) weights[i] = 0;
         }
         args.weights = weights.data();
       }},
      {FRT_OP_MOE_COMBINE,
       [](void* a) { as<frt_moe_combine_args>(a).shared = as<frt_moe_combine_args>(a).routed; }},
      // One input is dropped; the rows of a single output stay where they are.
      {FRT_OP_LINEAR,
       [](void* a) {
         frt_weight& weight = as<frt_linear_args>(a).weight;
         const bool shortened = weight.rows == 1 && weight.format != frt::kWeightNvfp4;
         if (shortened && weight.cols > 1) --weight.cols;
       }},
  };
  return all;
}

struct Kernel {
  frt_kernel inner{};
  uint32_t args_size = 0;
  Defect defect = nullptr;
};

bool has_defect(const char* how) {
  const char* named = std::getenv("FRT_TEST_DEFECT");
  return named && named == std::string(how);
}

frt_status crash(void*, frt_backend_stream, const void*, frt_error*) {
  const char* path = std::getenv("FRT_TEST_DEFECT_FILE");
  if (path) std::fclose(std::fopen(path, "w"));
  std::abort();
}

frt_status launch(void* self, frt_backend_stream stream, const void* args, frt_error* error) {
  const Kernel& kernel = *static_cast<const Kernel*>(self);
  // Refusals look at what the caller gave.
  std::vector<std::uint64_t> copy((kernel.args_size + 7) / 8);
  std::memcpy(copy.data(), args, kernel.args_size);
  kernel.defect(copy.data());
  return kernel.inner.launch(kernel.inner.self, stream, copy.data(), error);
}

frt_status unsupported(void*, frt_backend_stream, const void*, frt_error* error) {
  return set_error(error, FRT_ERR_UNSUPPORTED, "not on this device");
}

frt_status promise(void*, const void*, frt_error*) {
  return FRT_OK;
}

frt_status confused(void* self, frt_backend_stream stream, const void* args, frt_error* error) {
  const frt_kernel& inner = static_cast<const Kernel*>(self)->inner;
  const frt_status status = inner.launch(inner.self, stream, args, error);
  return status == FRT_ERR_INVALID_ARGUMENT ? FRT_ERR_UNSUPPORTED : status;
}

const frt_plugin_desc& inner_plugin() {
  static const frt_plugin_desc* const found = [] {
    void* library = ::dlopen(FRT_DEFECT_INNER, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw Error(FRT_ERR_NOT_FOUND, ::dlerror());
    return static_cast<const frt_plugin_desc*>(::dlsym(library, FRT_PLUGIN_SYMBOL));
  }();
  return *found;
}

const frt_backend_v1* inner_backend = nullptr;
const frt_kernels_v1* inner_kernels = nullptr;

class DefectPlugin {
 public:
  DefectPlugin(const Host& host, const ConfigView&) {
    frt_config none{};
    none.struct_size = sizeof(none);
    frt_error error{};
    check(inner_plugin().open(host.raw(), &none, &inner_, &error), error);
    inner_backend =
        static_cast<const frt_backend_v1*>(inner_plugin().extension(inner_, FRT_EXT_BACKEND));
    inner_kernels =
        static_cast<const frt_kernels_v1*>(inner_plugin().extension(inner_, FRT_EXT_KERNELS));
  }
  ~DefectPlugin() { inner_plugin().close(inner_); }
  DefectPlugin(const DefectPlugin&) = delete;
  DefectPlugin& operator=(const DefectPlugin&) = delete;

  frt_plugin inner() const { return inner_; }
  const void* extension(std::string_view id) noexcept;
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? inner_plugin().extension(nullptr, FRT_EXT_CONFIG_SCHEMA)
                                       : nullptr;
  }

 private:
  frt_plugin inner_ = nullptr;
};

frt_plugin inner_of(frt_plugin plugin) {
  return object<DefectPlugin>(plugin)->inner();
}

frt_status device_count(frt_plugin plugin, uint32_t* count, frt_error* error) {
  return inner_backend->device_count(inner_of(plugin), count, error);
}
frt_status device_info(frt_plugin plugin, uint32_t ordinal, frt_device_info* info,
                       frt_error* error) {
  return inner_backend->device_info(inner_of(plugin), ordinal, info, error);
}
frt_status exec_launch(frt_backend_exec exec, frt_backend_stream stream) {
  if (has_defect("launch_allocates")) {
    std::vector<int>* const kept = new std::vector<int>();
    kept->push_back(1);
    delete kept;
  }
  if (has_defect("launch_waits")) inner_backend->stream_sync(stream);
  return inner_backend->exec_launch(exec, stream);
}

// Whether a stream may have work.
std::atomic<bool> busy{false};

frt_status stream_call(frt_backend_stream stream, frt_host_function function, void* user) {
  busy = true;
  return inner_backend->stream_call(stream, function, user);
}
frt_status stream_sync(frt_backend_stream stream) {
  const frt_status status = inner_backend->stream_sync(stream);
  busy = false;
  return status;
}
frt_status memory_alloc(frt_backend_device device, frt_space space, uint64_t bytes, void** pointer,
                        frt_error* error) {
  if (busy && has_defect("alloc_beside_work")) {
    return set_error(error, FRT_ERR_BAD_STATE, "a stream has work");
  }
  return inner_backend->memory_alloc(device, space, bytes, pointer, error);
}

frt_status stream_create(frt_backend_device device, int32_t priority, frt_backend_stream* stream,
                         frt_error* error) {
  if (has_defect("exit_aborts")) std::atexit([] { std::abort(); });
  return inner_backend->stream_create(device, priority, stream, error);
}

frt_status event_wait(frt_backend_event event, frt_backend_stream stream) {
  return has_defect("wait_does_nothing") ? FRT_OK : inner_backend->event_wait(event, stream);
}
frt_status fill(frt_backend_stream stream, void* target, frt_space space, uint64_t bytes,
                uint8_t value) {
  if (has_defect("fill_other")) value ^= 1;
  return inner_backend->fill(stream, target, space, bytes, value);
}
void capture_abort(frt_backend_stream stream) {
  if (!has_defect("abort_keeps_recording")) inner_backend->capture_abort(stream);
}

frt_status device_open(frt_plugin plugin, uint32_t ordinal, const frt_config* config,
                       frt_backend_device* device, frt_error* error) {
  if (has_defect("crash_once") && ::access(std::getenv("FRT_TEST_DEFECT_FILE"), F_OK) == 0)
    std::abort();
  return inner_backend->device_open(inner_of(plugin), ordinal, config, device, error);
}

// Two streams meet in calls: the target's copies when the source's has arrived, which waits for it.
struct Meeting {
  void* target;
  const void* source;
  uint64_t bytes;
  std::vector<std::byte> early{};  // what the source was when the copy was submitted
  std::atomic<bool> arrived{false}, copied{false};
  std::atomic<int> leaving{2};

  void leave() {
    if (--leaving == 0) delete this;
  }
};
frt_status copy_peer(frt_backend_stream target_stream, void* target,
                     frt_backend_stream source_stream, const void* source, uint64_t bytes) {
  auto* meeting = new Meeting{target, source, bytes};
  if (has_defect("copy_peer")) {
    const auto* first = static_cast<const std::byte*>(source);
    meeting->early.assign(first, first + bytes);
  }
  const auto at_source = [](void* user, frt_error*) -> frt_status {
    auto* self = static_cast<Meeting*>(user);
    self->arrived = true;
    while (!self->copied) std::this_thread::yield();
    self->leave();
    return FRT_OK;
  };
  const auto at_target = [](void* user, frt_error*) -> frt_status {
    auto* self = static_cast<Meeting*>(user);
    while (!self->arrived) std::this_thread::yield();
    std::memcpy(self->target, self->early.empty() ? self->source : self->early.data(), self->bytes);
    self->copied = true;
    self->leave();
    return FRT_OK;
  };
  frt_status status = inner_backend->stream_call(target_stream, at_target, meeting);
  if (status != FRT_OK) {
    delete meeting;
    return status;
  }
  return inner_backend->stream_call(source_stream, at_source, meeting);
}

frt_status last_error(frt_backend_device device, char* text, uint64_t capacity) {
  static frt_status kept = FRT_OK;
  const frt_status status = inner_backend->last_error(device, text, capacity);
  if (!has_defect("last_error")) return status;
  if (status != FRT_OK) kept = status;
  return kept;
}

// Lives as long as the process: devices share it.
frt_status list_kernels(frt_backend_device device, const frt_kernel_desc** kernels, uint64_t* count,
                        frt_error* error) {
  return guard(error, [&] {
    struct Lists {
      std::vector<std::unique_ptr<Kernel>> kernels;
      std::vector<frt_kernel_desc> descriptions;
    };
    static std::map<frt_backend_device, Lists> all;
    Lists& made = all[device];
    const frt_kernel_desc* list = nullptr;
    uint64_t listed = 0;
    frt_error reason{};
    check(inner_kernels->list(device, &list, &listed, &reason), reason);
    const auto* at = reinterpret_cast<const std::byte*>(list);
    made.descriptions.clear();
    for (uint64_t i = 0; i < listed; ++i, at += inner_kernels->stride) {
      frt_kernel_desc description = *reinterpret_cast<const frt_kernel_desc*>(at);
      const auto named = [&](const char* variable) {
        const char* name = std::getenv(variable);
        return name && description.name == std::string(name);
      };
      const auto replace = [&](decltype(frt_kernel::launch) function, Defect defect) {
        made.kernels.push_back(
            std::make_unique<Kernel>(Kernel{description.kernel, description.args_size, defect}));
        description.kernel = {made.kernels.back().get(), function, nullptr};
      };
      if (named("FRT_TEST_DEFECT")) replace(launch, operator_defects().at(description.name));
      if (has_defect("crash_once") && description.name == std::string(FRT_OP_SILU_MUL)) {
        replace(crash, nullptr);
      }
      if (named("FRT_UNSUPPORTED")) replace(unsupported, nullptr);
      if (named("FRT_CONFUSED")) replace(confused, nullptr);
      if (named("FRT_NARROW")) description.outputs = FRT_DTYPE_BIT(FRT_DTYPE_BF16);
      if (named("FRT_PROMISED")) {
        replace(unsupported, nullptr);
        description.kernel.supports = promise;
      }
      made.descriptions.push_back(description);
    }
    *kernels = made.descriptions.data();
    *count = made.descriptions.size();
  });
}

constexpr frt_kernels_v1 kKernels = {sizeof(frt_kernels_v1), sizeof(frt_kernel_desc), list_kernels};

const void* DefectPlugin::extension(std::string_view id) noexcept {
  static const frt_backend_v1 backend = [] {
    frt_backend_v1 table = *inner_backend;
    table.device_count = device_count;
    table.device_info = device_info;
    table.device_open = device_open;
    table.copy_peer = copy_peer;
    table.last_error = last_error;
    table.exec_launch = exec_launch;
    table.stream_create = stream_create;
    table.stream_call = stream_call;
    table.stream_sync = stream_sync;
    table.memory_alloc = memory_alloc;
    table.event_wait = event_wait;
    table.fill = fill;
    table.capture_abort = capture_abort;
    return table;
  }();
  if (id == FRT_EXT_BACKEND) return &backend;
  if (id == FRT_EXT_KERNELS) return &kKernels;
  // Devices are those of the plugin inside.
  if (id == FRT_EXT_KERNEL_VARIANTS)
    return inner_plugin().extension(inner_, FRT_EXT_KERNEL_VARIANTS);
  return nullptr;
}

}  // namespace
}  // namespace frt::test

FRT_PLUGIN(frt::test::DefectPlugin, backend, "frt.test.defect", "1.0.0", R"(
targets = ["defect_1"]
summary = "For tests: the CPU with one operator that computes something else"
)");
