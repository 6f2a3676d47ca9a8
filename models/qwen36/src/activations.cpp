// SPDX-License-Identifier: Apache-2.0
// The layout is computed twice with the same code: once to learn the size, once with the address.
#include "activations.hpp"

#include <algorithm>

namespace frt::qwen36 {
namespace {

class Cursor {
 public:
  explicit Cursor(std::byte* base) : base_(base) {}

  void* take(frt_dtype dtype, std::int64_t elements) {
    const std::uint64_t at = offset_;
    offset_ += (bytes_of(dtype, elements) + 255) / 256 * 256;
    high_ = std::max(high_, offset_);
    return base_ ? base_ + at : nullptr;
  }
  template <class Element>
  Element* take(frt_dtype dtype, std::int64_t elements) {
    return static_cast<Element*>(take(dtype, elements));
  }
  std::uint64_t mark() const { return offset_; }
  void rewind(std::uint64_t mark) { offset_ = mark; }
  std::uint64_t bytes() const { return high_; }

 private:
  std::byte* base_;
  std::uint64_t offset_ = 0;
  std::uint64_t high_ = 0;
};

std::uint64_t lay_out(Activations& a, std::byte* base, const Config& c, const Precision& precision,
                      std::int64_t rows, std::int64_t max_batch, bool with_mtp) {
  Cursor cursor(base);
  const frt_dtype type = precision.activation;
  a.ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows);
  a.residual = cursor.take(precision.residual, rows * c.hidden);
  a.x = cursor.take(type, rows * c.hidden);
  a.mixed = cursor.take(type, rows * c.hidden);
  a.fed = cursor.take(type, rows * c.hidden);
  a.hidden = cursor.take(type, rows * c.hidden);
  a.last = cursor.take(type, c.hidden);
  if (with_mtp) {
    a.mtp_ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows);
    a.mtp_position = cursor.take<std::int32_t>(FRT_DTYPE_I32, max_batch);
    a.mtp_length = cursor.take<std::int32_t>(FRT_DTYPE_I32, max_batch);
    a.mtp_embedded = cursor.take(type, rows * c.hidden);
    a.mtp_trunk = cursor.take(type, rows * c.hidden);
    a.mtp_pair = cursor.take(type, rows * 2 * c.hidden);
    a.mtp_residual = cursor.take(precision.residual, rows * c.hidden);
    a.mtp_hidden = cursor.take(type, rows * c.hidden);
  }
  const std::uint64_t shared = cursor.mark();

  a.qkv = cursor.take(type, rows * c.conv_channels());
  a.convolved = cursor.take(type, rows * c.conv_channels());
  a.z = cursor.take(type, rows * c.value_width());
  a.a = cursor.take(type, rows * c.value_heads);
  a.b = cursor.take(type, rows * c.value_heads);
  a.o = cursor.take(type, rows * c.value_width());
  a.gated = cursor.take(type, rows * c.value_width());

  cursor.rewind(shared);
  a.query = cursor.take(type, rows * c.query_width());
  a.key = cursor.take(type, rows * c.kv_width());
  a.value = cursor.take(type, rows * c.kv_width());
  a.rotated = cursor.take(type, rows * c.attention_width());
  a.attended = cursor.take(type, rows * c.attention_width());

  cursor.rewind(shared);
  if (c.mixture()) {
    a.router_logits = cursor.take<float>(FRT_DTYPE_F32, rows * c.experts);
    a.expert_ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows * c.chosen);
    a.expert_weights = cursor.take<float>(FRT_DTYPE_F32, rows * c.chosen);
    a.shared_hidden = cursor.take(type, rows * 2 * c.shared_width);
    a.shared_y = cursor.take(type, rows * c.hidden);
    a.shared_scale = cursor.take<float>(FRT_DTYPE_F32, rows);
  } else {
    a.gate = cursor.take(type, rows * c.intermediate);
    a.inner = cursor.take(type, rows * c.intermediate);
  }
  return cursor.bytes();
}

}  // namespace

Ports make_ports(const Context& context, const Config& config, std::int64_t prefill_chunk,
                 std::int64_t max_batch) {
  const auto alloc = [&](frt_dtype dtype, std::int64_t elements, const char* name) {
    return context.alloc(FRT_SPACE_DEVICE, bytes_of(dtype, elements), name);
  };
  Ports ports;
  ports.mask_words = (config.vocabulary + 31) / 32;
  ports.tokens = alloc(FRT_DTYPE_I32, std::max(prefill_chunk, max_batch), "tokens");
  ports.slot_ids = alloc(FRT_DTYPE_I32, max_batch, "slots");
  ports.positions = alloc(FRT_DTYPE_I32, max_batch, "positions");
  ports.lengths = alloc(FRT_DTYPE_I32, max_batch, "lengths");
  ports.starts = alloc(FRT_DTYPE_U32, max_batch, "starts");
  ports.sampling = context.alloc(
      FRT_SPACE_DEVICE, static_cast<std::uint64_t>(max_batch) * sizeof(frt_sampling_params),
      "sampling");
  ports.mask = alloc(FRT_DTYPE_U32, max_batch * ports.mask_words, "mask");
  ports.next_tokens = alloc(FRT_DTYPE_I32, max_batch, "next_tokens");
  ports.log_probabilities = alloc(FRT_DTYPE_F32, max_batch, "log_probabilities");
  ports.logits = alloc(FRT_DTYPE_F32, max_batch * config.vocabulary, "logits");
  return ports;
}

std::uint64_t port_bytes(const Config& config, std::int64_t prefill_chunk, std::int64_t max_batch) {
  const std::int64_t mask_words = (config.vocabulary + 31) / 32;
  return bytes_of(FRT_DTYPE_I32, std::max(prefill_chunk, max_batch)) +
         bytes_of(FRT_DTYPE_I32, max_batch * (6 + mask_words + config.vocabulary)) +
         static_cast<std::uint64_t>(max_batch) * sizeof(frt_sampling_params);
}

Activations make_activations(const Context& context, const Config& config,
                             const Precision& precision, std::int64_t rows, std::int64_t max_batch,
                             bool with_mtp, std::uint64_t* bytes) {
  Activations activations;
  const std::uint64_t size =
      lay_out(activations, nullptr, config, precision, rows, max_batch, with_mtp);
  if (bytes) *bytes = size;
  if (!context) return activations;
  activations.memory = context.alloc(FRT_SPACE_DEVICE, size, "activations");
  lay_out(activations, activations.memory.pointer<std::byte>(), config, precision, rows, max_batch,
          with_mtp);
  return activations;
}

}  // namespace frt::qwen36
