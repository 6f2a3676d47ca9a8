// SPDX-License-Identifier: Apache-2.0
// frt/exec.hpp - the C++ face of frt/exec.h, used by plugins and hosts alike. Header only.
//
// `Context` and `Recorder` are views; copy them freely. `Buffer`, `Stream`, `Event`, `Graph` and
// `State` own one handle each: move-only, released by the destructor, so they must go
// before the context is closed. Each converts to its handle, for the calls that take one. Errors
// are thrown as frt::Error with core's text, also where the C call gives only a code; the
// functions named try_* are noexcept and return the code, for hot loops. Thread tags are those of
// the C functions.
//
//   frt::Context context(table, handle);
//   frt::Buffer x = context.alloc(FRT_SPACE_DEVICE, 4096, "x");
//   frt::Kernel<frt_rms_norm_args> norm;
//   frt::KernelSet().add(norm, "frt.rms_norm/1").resolve(context,
//   frt::KernelTypes(FRT_DTYPE_BF16)); frt::Graph graph = context.create_graph("decode", 8);
//   graph.capture(key, [&](const frt::Recorder& recorder) { norm(recorder, args); });
//   graph.replay(key, stream);
#pragma once

#include <frt/capsule.h>
#include <frt/exec.h>
#include <frt/error.hpp>
#include <frt/table.hpp>
#include <frt/weights.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// What a host of the oldest version gives (frt/table.hpp); its functions are all there.
FRT_CONTRACT(frt_exec_v1, FRT_EXT_EXEC, buffer_copy_between);
FRT_CONTRACT(frt_state_v1, FRT_EXT_STATE, state_reserve);

namespace frt {

class Buffer;
class Event;
class Graph;
class KernelOwner;
class Stream;

// ---- context -------------------------------------------------------------------------------

// A view of an opened device: the function table and the handle.
class Context {
 public:
  Context() = default;

  // Throws FRT_ERR_ABI if `table` lacks what the oldest version promises.  [setup]
  Context(const frt_exec_v1* table, frt_context handle) : table_(table), handle_(handle) {
    if (!table || !handle) throw Error(FRT_ERR_INVALID_ARGUMENT, "context: a null table or handle");
    read_table<frt_exec_v1>(table, "the host");
  }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  operator frt_context() const noexcept { return handle_; }
  frt_context handle() const noexcept { return handle_; }
  const frt_exec_v1& table() const noexcept { return *table_; }

  frt_context_info info() const {  // [any]
    frt_context_info info{};
    info.struct_size = sizeof(info);
    check(table_->context_info(handle_, &info), "context_info");
    return info;
  }
  frt_counters counters() const {  // [any]
    frt_counters counters{};
    counters.struct_size = sizeof(counters);
    check(table_->context_counters(handle_, &counters), "context_counters");
    return counters;
  }
  void ready() const { table_->context_ready(handle_); }                         // [setup]
  void sync() const { checked(table_->context_sync(handle_), "context_sync"); }  // [driver]

  // The text behind the last code of a call without frt_error, with the device's own words.
  // [driver]
  std::string last_error() const {
    frt_error error{};
    table_->context_last_error(handle_, &error);
    return error.message;
  }

  // Throws `status` of the call `what` with the text of last_error().  [driver]
  void checked(frt_status status, std::string_view what) const {
    if (status == FRT_OK) return;
    frt_error error{};
    table_->context_last_error(handle_, &error);
    if (error.code != status) error.message[0] = '\0';
    check(status, error, what);
  }

  // Makers, see frt/exec.h.  [setup]
  Buffer alloc(frt_space space, uint64_t bytes, const std::string& name) const;
  Buffer wrap(frt_space space, void* pointer, uint64_t bytes, const std::string& name,
              void (*done)(void* user) = nullptr, void* user = nullptr) const;
  Stream create_stream(const std::string& name, int32_t priority = 0) const;
  Stream wrap_stream(void* native, const std::string& name) const;
  Event create_event(uint32_t flags = 0) const;
  Graph create_graph(const std::string& name, uint32_t capacity) const;

  // Kernels of the caller's own, found by KernelSet::resolve with the owner that this returns. They
  // go with it.  [setup]
  KernelOwner register_kernels(std::span<const frt_kernel_desc> kernels) const;

  // Calls `work()` (returns void or frt_status) in stream order, at every replay where `stream`
  // records; see frt_exec_v1::stream_call. It may throw. What it holds lives as long as calls can
  // come.  [driver]
  template <class Work>
  void call(frt_backend_stream stream, Work&& work) const;

  // The native stream behind a launch's; NULL where there is none.  [any]
  void* native(frt_backend_stream stream) const noexcept {
    return table_->backend_stream_native(handle_, stream);
  }

 private:
  const frt_exec_v1* table_ = nullptr;
  frt_context handle_ = nullptr;
};

namespace detail {

// One owned handle and the context it was made on.
template <class Handle, void (*frt_exec_v1::*kRelease)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Context& context, Handle handle) noexcept : context_(context), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : context_(other.context_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      context_ = other.context_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Owned() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  operator Handle() const& noexcept { return handle_; }
  operator Handle() const&& = delete;  // it would dangle
  Handle handle() const noexcept { return handle_; }
  const Context& context() const noexcept { return context_; }
  const frt_exec_v1& table() const noexcept { return context_.table(); }

  // Gives the handle back now.  [setup]
  void reset() noexcept {
    if (handle_) (context_.table().*kRelease)(std::exchange(handle_, nullptr));
  }
  // Hands the handle to the caller, who releases it.  [any]
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  Context context_;
  Handle handle_ = nullptr;
};

}  // namespace detail

// ---- streams and events --------------------------------------------------------------------

class Stream : public detail::Owned<frt_stream, &frt_exec_v1::stream_release> {
 public:
  using Owned::Owned;

  void sync() const {
    context().checked(table().stream_sync(handle()), "stream_sync");
  }                                   // [driver]
  void wait(frt_event event) const {  // later work waits  [hot]
    context().checked(table().stream_wait(handle(), event), "stream_wait");
  }
  void* native() const noexcept { return table().stream_native(handle()); }                 // [any]
  frt_backend_stream backend() const noexcept { return table().stream_backend(handle()); }  // [any]
};

class Event : public detail::Owned<frt_event, &frt_exec_v1::event_release> {
 public:
  using Owned::Owned;

  void record(frt_stream stream) const {  // [hot]
    context().checked(table().event_record(handle(), stream), "event_record");
  }
  bool query() const {  // true: done  [hot]
    const frt_status status = table().event_query(handle());
    if (status != FRT_ERR_NOT_READY) context().checked(status, "event_query");
    return status == FRT_OK;
  }
  void sync() const { context().checked(table().event_sync(handle()), "event_sync"); }  // [driver]
  // Milliseconds from `start` to this event; both FRT_EVENT_TIMING and done.  [driver]
  double elapsed_since(const Event& start) const {
    double ms = 0;
    context().checked(table().event_elapsed(start.handle(), handle(), &ms), "event_elapsed");
    return ms;
  }
};

// ---- buffers -------------------------------------------------------------------------------

class Buffer : public detail::Owned<frt_buffer, &frt_exec_v1::buffer_release> {
 public:
  Buffer() = default;

  // Takes over one reference of `handle`.  [setup]
  Buffer(const Context& context, frt_buffer handle) : Owned(context, handle) {
    info_.struct_size = sizeof(info_);
    check(table().buffer_info(handle, &info_), "buffer_info");
  }

  // Another owner of a buffer that somebody else holds.  [any]
  static Buffer retain(const Context& context, frt_buffer handle) {
    context.table().buffer_retain(handle);
    return Buffer(context, handle);
  }

  uint64_t bytes() const noexcept { return info_.bytes; }
  frt_space space() const noexcept { return info_.space; }
  const char* name() const noexcept { return info_.name; }

  // The address, as a pointer to T; in host and shared spaces it may be dereferenced when no work
  // that touches the buffer is in flight.  [any]
  template <class T = void>
  T* pointer() const noexcept {
    return static_cast<T*>(info_.pointer);
  }

  // The part [offset, offset + bytes), sharing memory.  [setup]
  Buffer view(uint64_t offset, uint64_t bytes, const std::string& name) const {
    frt_buffer part = nullptr;
    frt_error error{};
    check(table().buffer_view(handle(), offset, bytes, name.c_str(), &part, &error), error);
    return Buffer(context(), part);
  }

  // Copies host values to byte `offset`, in stream order; returns when they are there.  [setup]
  template <class T>
  void upload(std::span<const T> values, const Stream& stream, uint64_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (values.empty()) return;
    const Buffer host = context().wrap(FRT_SPACE_HOST, const_cast<T*>(values.data()),
                                       values.size_bytes(), "upload");
    context().checked(table().buffer_copy(handle(), offset, host.handle(), 0, host.bytes(), stream),
                      "upload");
    stream.sync();
  }
  template <class T>
  void upload(const std::vector<T>& values, const Stream& stream, uint64_t offset = 0) const {
    upload(std::span<const T>(values), stream, offset);
  }

  // Copies from byte `offset` to host memory, in stream order; returns when it is done.  [setup]
  template <class T>
  void download(std::span<T> values, const Stream& stream, uint64_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (values.empty()) return;
    const Buffer host =
        context().wrap(FRT_SPACE_HOST, values.data(), values.size_bytes(), "download");
    context().checked(table().buffer_copy(host.handle(), 0, handle(), offset, host.bytes(), stream),
                      "download");
    stream.sync();
  }
  template <class T>
  std::vector<T> download(uint64_t count, const Stream& stream, uint64_t offset = 0) const {
    std::vector<T> values(count);
    download(std::span<T>(values), stream, offset);
    return values;
  }

 private:
  frt_buffer_info info_{};
};

// Copies between two contexts, in the order of both streams; see frt_exec_v1::buffer_copy_between.
// [driver]
inline void copy_between(const Buffer& target, uint64_t target_offset, const Stream& target_stream,
                         const Buffer& source, uint64_t source_offset, const Stream& source_stream,
                         uint64_t bytes) {
  frt_error error{};
  check(target.table().buffer_copy_between(target, target_offset, target_stream, source,
                                           source_offset, source_stream, bytes, &error),
        error);
}

// ---- recording and kernels -----------------------------------------------------------------

// Where operators, copies and fills go: a capturing stream inside a recipe, or a stream that runs
// them at once. Valid as long as the stream, inside a recipe as long as the call.
class Recorder {
 public:
  Recorder(const Context& context, const frt_recorder& recorder) noexcept : context_(context) {
    std::memcpy(&recorder_, &recorder,
                std::min<std::size_t>(recorder.struct_size, sizeof(recorder_)));
  }

  // Runs at once, on `stream`.  [driver]
  explicit Recorder(const Stream& stream) noexcept : context_(stream.context()) {
    recorder_.struct_size = sizeof(recorder_);
    recorder_.context = stream.context();
    recorder_.stream = stream.handle();
    recorder_.backend_stream = stream.backend();
  }

  const Context& context() const noexcept { return context_; }
  frt_stream stream() const noexcept { return recorder_.stream; }
  frt_backend_stream backend_stream() const noexcept { return recorder_.backend_stream; }
  bool capturing() const noexcept { return recorder_.capturing != 0; }

  void copy(frt_buffer target, uint64_t target_offset, frt_buffer source, uint64_t source_offset,
            uint64_t bytes) const {  // [hot]
    context_.checked(context_.table().buffer_copy(target, target_offset, source, source_offset,
                                                  bytes, recorder_.stream),
                     "buffer_copy");
  }
  void copy_batch(std::span<const frt_copy> copies) const {  // [hot]
    context_.checked(
        context_.table().buffer_copy_batch(copies.data(), copies.size(), recorder_.stream),
        "buffer_copy_batch");
  }
  void fill(frt_buffer buffer, uint64_t offset, uint64_t bytes, uint8_t value) const {  // [hot]
    context_.checked(context_.table().buffer_fill(buffer, offset, bytes, value, recorder_.stream),
                     "buffer_fill");
  }

 private:
  Context context_;
  frt_recorder recorder_{};
};

// The kernels of one register_kernels(). Declare it before the graphs that record them.
class KernelOwner : public detail::Owned<frt_kernel_owner, &frt_exec_v1::kernels_release> {
 public:
  using Owned::Owned;
};

// A resolved operator with its argument struct. An optional operator that the backend lacks is
// false.
template <class Args>
class Kernel {
 public:
  Kernel() = default;
  Kernel(const frt_kernel& kernel, std::string name) : kernel_(kernel), name_(std::move(name)) {}

  explicit operator bool() const noexcept { return kernel_.launch != nullptr; }
  const std::string& name() const noexcept { return name_; }

  // Submits the operator; fills args.struct_size. Throws with the names of the operator and of the
  // backend that it was submitted to.  [driver]
  void operator()(const Recorder& recorder, Args args) const {
    if (!kernel_.launch) {
      throw Error(FRT_ERR_NOT_FOUND,
                  "operator " + (name_.empty() ? "?" : name_) + " is called but not resolved");
    }
    args.struct_size = static_cast<uint32_t>(sizeof(Args));
    frt_error error;
    error.message[0] = '\0';
    const frt_status status =
        kernel_.launch(kernel_.self, recorder.backend_stream(), &args, &error);
    if (status == FRT_OK) return;
    error.message[FRT_ERROR_CAPACITY - 1] = '\0';
    check(status, error, place(recorder.context(), error.message));
  }

 private:
  // "backend 'acme.fast': frt.linear/1", without the name where `text` has it; a kernel of
  // another name may be the model's own.
  std::string place(const Context& context, std::string_view text) const {
    frt_context_info info{};
    info.struct_size = sizeof(info);
    const bool known = context.table().context_info(context, &info) == FRT_OK && info.backend_id;
    const std::string backend = std::string("backend '") + (known ? info.backend_id : "?") + "'";
    if (!name_.starts_with("frt.")) return name_ + " on " + backend;
    return text.find(name_) == std::string_view::npos ? backend + ": " + name_ : backend;
  }

  frt_kernel kernel_{};
  std::string name_;
};

// The element types that kernels must read and write; an empty set asks for nothing.
struct KernelTypes {
  KernelTypes() = default;
  // Both are `activation`; FRT_DTYPE_NONE asks for nothing.
  explicit KernelTypes(frt_dtype activation)
      : inputs(activation == FRT_DTYPE_NONE ? 0 : FRT_DTYPE_BIT(activation)), outputs(inputs) {}
  KernelTypes(frt_dtype_set input_types, frt_dtype_set output_types)
      : inputs(input_types), outputs(output_types) {}
  frt_dtype_set inputs = 0, outputs = 0;
};

// The operators a model needs, found in one call, so that all missing ones are reported at once.
// The kernels must stay where they are until resolve().
class KernelSet {
 public:
  // `name`: "vendor.op/revision"; a leading '?' marks an optional one.
  template <class Args>
  KernelSet& add(Kernel<Args>& kernel, std::string name) {
    names_.push_back(std::move(name));
    setters_.push_back([&kernel](const frt_kernel& found, const std::string& as) {
      kernel = Kernel<Args>(found, as[0] == '?' ? as.substr(1) : as);
    });
    return *this;
  }

  // Fills every added kernel, of `owner` (NULL: none) or of the backend, or throws
  // FRT_ERR_NOT_FOUND with the names and fills none.  [setup]
  void resolve(const Context& context, KernelTypes types, const WeightFormats& weights = {},
               frt_kernel_owner owner = nullptr) const {
    std::vector<const char*> names;
    names.reserve(names_.size());
    for (const std::string& name : names_) names.push_back(name.c_str());
    std::vector<frt_kernel> found(names.size());
    frt_error error{};
    check(context.table().kernels_resolve(
              context, owner, names.data(), names.size(), types.inputs, types.outputs,
              weights.data(), static_cast<uint32_t>(weights.size()), found.data(), &error),
          error);
    for (std::size_t i = 0; i < found.size(); ++i) setters_[i](found[i], names_[i]);
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::function<void(const frt_kernel&, const std::string&)>> setters_;
};

// ---- graphs --------------------------------------------------------------------------------

class Graph : public detail::Owned<frt_graph, &frt_exec_v1::graph_release> {
 public:
  Graph() = default;
  Graph(const Context& context, frt_graph handle)
      : Owned(context, handle), eager_(context.info().eager != 0) {}
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&& other) noexcept {
    if (this != &other) {
      reset();  // before the recipes it may hold
      Owned::operator=(std::move(other));
      eager_ = other.eager_;
      recipes_ = std::move(other.recipes_);
    }
    return *this;
  }
  ~Graph() { reset(); }

  // Records `key` by calling recipe(const Recorder&) or recipe(const Recorder&, key). What it
  // throws comes out here. In an eager context the recipe is kept and called at each replay; it
  // then holds references for as long as the variant lives.  [setup]
  template <class Recipe>
  void capture(frt_shape_key key, Recipe&& recipe) {
    auto held = std::make_unique<TypedRecipe<std::decay_t<Recipe>>>(context(),
                                                                    std::forward<Recipe>(recipe));
    frt_error error{};
    check(table().graph_capture(handle(), key, &call_recipe, held.get(), &error), error);
    if (!eager_) return;
    recipes_[key] = std::move(held);
    std::erase_if(recipes_, [this](const auto& entry) { return !has(entry.first); });
  }
  void replay(frt_shape_key key, const Stream& stream) const {  // [hot]
    context().checked(table().graph_replay(handle(), key, stream.handle()), "graph_replay");
  }
  frt_status try_replay(frt_shape_key key, const Stream& stream) const noexcept {  // [hot]
    return table().graph_replay(handle(), key, stream.handle());
  }
  bool has(frt_shape_key key) const noexcept {  // [hot]
    return table().graph_has_variant(handle(), key) != 0;
  }
  void evict(frt_shape_key key) {  // [setup]
    context().checked(table().graph_evict(handle(), key), "graph_evict");
    recipes_.erase(key);
  }
  uint32_t variant_count() const noexcept {
    return table().graph_variant_count(handle());
  }                                          // [any]
  std::vector<frt_shape_key> keys() const {  // most recently used first  [driver]
    std::vector<frt_shape_key> keys(variant_count());
    keys.resize(table().graph_keys(handle(), keys.data(), static_cast<uint32_t>(keys.size())));
    return keys;
  }

 private:
  struct Recipe {
    explicit Recipe(const Context& owner) : context(owner) {}
    virtual ~Recipe() = default;
    virtual void record(const Recorder& recorder, frt_shape_key key) = 0;
    Context context;
  };
  template <class Callable>
  struct TypedRecipe final : Recipe {
    template <class From>
    TypedRecipe(const Context& owner, From&& from)
        : Recipe(owner), callable(std::forward<From>(from)) {}
    void record(const Recorder& recorder, frt_shape_key key) override {
      if constexpr (std::is_invocable_v<Callable&, const Recorder&, frt_shape_key>) {
        callable(recorder, key);
      } else {
        callable(recorder);
      }
    }
    Callable callable;
  };
  static frt_status call_recipe(void* user, const frt_recorder* recorder, frt_shape_key key,
                                frt_error* error) noexcept {
    try {
      auto& recipe = *static_cast<Recipe*>(user);
      recipe.record(Recorder(recipe.context, *recorder), key);
      return FRT_OK;
    } catch (const Error& e) {
      return set_error(error, e.status(), e.what());
    } catch (const std::exception& e) {
      return set_error(error, FRT_ERR_CALLBACK, e.what());
    } catch (...) {
      return set_error(error, FRT_ERR_CALLBACK, "an exception of unknown type");
    }
  }

  bool eager_ = false;
  std::unordered_map<frt_shape_key, std::unique_ptr<Recipe>> recipes_;  // eager contexts only
};

// ---- state ---------------------------------------------------------------------------------

// An arena of slots (frt/capsule.h).
class State {
 public:
  State() = default;

  // Checks `layout` and allocates `slots` zeroed slots.  [setup]
  State(const frt_state_v1* table, const Context& context, const frt_capsule_layout& layout,
        uint32_t slots, const std::string& name)
      : table_(table), context_(context) {
    read_table<frt_state_v1>(table, "the host");
    frt_error error{};
    check(table->state_create(context, &layout, slots, name.c_str(), &handle_, &error), error);
    info_.struct_size = sizeof(info_);
    table->state_info(handle_, &info_);
  }
  State(State&& other) noexcept
      : table_(other.table_),
        context_(other.context_),
        handle_(std::exchange(other.handle_, nullptr)),
        info_(other.info_) {}
  State& operator=(State&& other) noexcept {
    if (this != &other) {
      reset();
      table_ = other.table_;
      context_ = other.context_;
      handle_ = std::exchange(other.handle_, nullptr);
      info_ = other.info_;
    }
    return *this;
  }
  ~State() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  frt_state handle() const noexcept { return handle_; }
  const frt_state_info& info() const noexcept { return info_; }

  // As info(), with today's counters.  [any]
  frt_state_info counters() const {
    frt_state_info info{};
    info.struct_size = sizeof(info);
    check(table_->state_info(handle_, &info), "state_info");
    return info;
  }

  // Bytes from the arena's start to region `name` in slot 0 or page 0.  [setup]
  uint64_t region(const std::string& name) const {
    uint64_t offset = 0;
    frt_error error{};
    check(table_->state_region(handle_, name.c_str(), &offset, &error), error);
    return offset;
  }
  void clear(uint32_t slot, const Stream& stream) const {  // [hot]
    context_.checked(table_->state_clear(handle_, slot, stream.handle()), "state_clear");
  }
  // Rows [first, end) of `slot` may be written by what `stream` gets from now on.  [hot]
  void reserve(uint32_t slot, uint64_t first, uint64_t end, const Stream& stream) const {
    context_.checked(table_->state_reserve(handle_, slot, first, end, stream.handle()),
                     "state_reserve");
  }
  void reset() noexcept {  // [setup]
    if (handle_) table_->state_release(std::exchange(handle_, nullptr));
  }

 private:
  const frt_state_v1* table_ = nullptr;
  Context context_;
  frt_state handle_ = nullptr;
  frt_state_info info_{};
};

// ---- makers --------------------------------------------------------------------------------

inline Buffer Context::alloc(frt_space space, uint64_t bytes, const std::string& name) const {
  frt_buffer buffer = nullptr;
  frt_error error{};
  check(table_->buffer_alloc(handle_, space, bytes, name.c_str(), &buffer, &error), error);
  return Buffer(*this, buffer);
}

inline Buffer Context::wrap(frt_space space, void* pointer, uint64_t bytes, const std::string& name,
                            void (*done)(void* user), void* user) const {
  frt_buffer buffer = nullptr;
  frt_error error{};
  check(table_->buffer_wrap(handle_, space, pointer, bytes, name.c_str(), done, user, &buffer,
                            &error),
        error);
  return Buffer(*this, buffer);
}

inline Stream Context::create_stream(const std::string& name, int32_t priority) const {
  frt_stream stream = nullptr;
  frt_error error{};
  check(table_->stream_create(handle_, priority, name.c_str(), &stream, &error), error);
  return Stream(*this, stream);
}

inline Stream Context::wrap_stream(void* native, const std::string& name) const {
  frt_stream stream = nullptr;
  frt_error error{};
  check(table_->stream_wrap(handle_, native, name.c_str(), &stream, &error), error);
  return Stream(*this, stream);
}

inline Event Context::create_event(uint32_t flags) const {
  frt_event event = nullptr;
  frt_error error{};
  check(table_->event_create(handle_, flags, &event, &error), error);
  return Event(*this, event);
}

inline Graph Context::create_graph(const std::string& name, uint32_t capacity) const {
  frt_graph graph = nullptr;
  frt_error error{};
  check(table_->graph_create(handle_, name.c_str(), capacity, &graph, &error), error);
  return Graph(*this, graph);
}

inline KernelOwner Context::register_kernels(std::span<const frt_kernel_desc> kernels) const {
  frt_kernel_owner owner = nullptr;
  frt_error error{};
  check(table_->kernels_register(handle_, kernels.data(), kernels.size(),
                                 static_cast<uint32_t>(sizeof(frt_kernel_desc)), &owner, &error),
        error);
  return KernelOwner(*this, owner);
}

template <class Work>
void Context::call(frt_backend_stream stream, Work&& work) const {
  using Held = std::decay_t<Work>;
  auto held = std::make_unique<Held>(std::forward<Work>(work));
  frt_error error{};
  const auto run = [](void* user, frt_error* reason) {
    return guard(reason, [user] { return (*static_cast<Held*>(user))(); });
  };
  const auto release = [](void* user) { delete static_cast<Held*>(user); };
  check(table_->stream_call(handle_, stream, run, held.get(), release, &error), error);
  held.release();  // core calls release
}

}  // namespace frt
