// SPDX-License-Identifier: Apache-2.0
// frt/role/lm_buffers.hpp - what models with frt.role.lm/1 have alike: the buffers that the role
// names, graphs with a variant for each power of two, and the table whose keys pick one of them.
// Header only; for models without drafts and bias.
//
//   role_.vocabulary = ...;                                  // and the other limits
//   buffers_ = frt::LmBuffers(context, role_, stream);           // role_ has the buffers now
//   frt::capture_buckets(prefill_, role_.prefill_chunk,
//                        [this](const frt::Recorder& to, uint32_t rows) { ... });
//   static constexpr frt_role_lm_v1 kRole = frt::lm_table<Acme>();   // Acme has role()
#pragma once

#include <frt/ops/sample.h>
#include <frt/ops/sequences.h>
#include <frt/role/lm.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <vector>

namespace frt {

// The buffers of frt_lm_info, in device space and full of zeros, so that padding is defined. They
// live as long as this object.
struct LmBuffers {
  LmBuffers() = default;
  // Of the limits in `info`: vocabulary, prefill_chunk and max_batch. Writes the buffers and
  // mask_words into it.  [setup]
  LmBuffers(const Context& context, frt_lm_info& info, const Stream& stream) {
    const uint32_t batch = info.max_batch;
    info.mask_words = (uint64_t{info.vocabulary} + 31) / 32;
    const auto put = [&]<class T>(T, const char* name, uint64_t count, Buffer& buffer) {
      buffer = zeros<T>(context, name, count, stream);
      return buffer.handle();
    };
    info.tokens = put(int32_t{}, "tokens", std::max(info.prefill_chunk, batch), tokens);
    info.slot_ids = put(int32_t{}, "slot_ids", batch, slot_ids);
    info.positions = put(int32_t{}, "positions", batch, positions);
    info.lengths = put(int32_t{}, "lengths", batch, lengths);
    info.starts = put(uint32_t{}, "starts", batch, starts);
    info.sampling = put(frt_sampling_params{}, "sampling", batch, sampling);
    info.mask = put(uint32_t{}, "mask", batch * info.mask_words, mask);
    info.next_tokens = put(int32_t{}, "next_tokens", batch, next_tokens);
    info.log_probabilities = put(float{}, "log_probabilities", batch, log_probabilities);
    info.logits = put(float{}, "logits", uint64_t{batch} * info.vocabulary, logits);
  }

  // Memory of the device with zeros; its size is counted in `bytes`.  [setup]
  template <class T>
  Buffer zeros(const Context& context, const char* name, uint64_t count, const Stream& stream) {
    Buffer made = context.alloc(FRT_SPACE_DEVICE, count * sizeof(T), name);
    made.upload(std::vector<T>(count), stream);
    bytes += made.bytes();
    return made;
  }

  // What a step of `count` sequences with up to `rows` rows reads of these buffers.  [any]
  frt_sequences sequences(uint32_t count, uint32_t rows) const {
    return {static_cast<int32_t>(count), static_cast<int32_t>(rows), slot_ids.pointer<int32_t>(),
            positions.pointer<int32_t>(), lengths.pointer<int32_t>()};
  }
  // Sampling from `logits`; counts and pending tokens are state, which the model adds.  [any]
  frt_sample_args sample_args(const frt_lm_info& info, const frt_sequences& sequences) const {
    frt_sample_args args{};
    args.vocabulary = static_cast<int32_t>(info.vocabulary);
    args.sequences = sequences;
    args.logits = logits.pointer<float>();
    args.stride = args.vocabulary;
    args.params = sampling.pointer<frt_sampling_params>();
    args.mask = mask.pointer<uint32_t>();
    args.mask_stride = static_cast<int64_t>(info.mask_words);
    args.ids = next_tokens.pointer<int32_t>();
    args.log_probabilities = log_probabilities.pointer<float>();
    return args;
  }

  Buffer tokens, slot_ids, positions, lengths, starts, sampling, mask;
  Buffer next_tokens, log_probabilities, logits;
  uint64_t bytes = 0;
};

// Variants are made for powers of two, and for `most`: the smallest that takes `count`.  [any]
inline uint32_t lm_bucket(uint32_t count, uint32_t most) {
  return std::min(std::bit_ceil(count), most);
}

// Captures record(recorder, size) for each of these sizes, which is the key. `most` is at least
// 1.  [setup]
template <class Record>
void capture_buckets(Graph& graph, uint32_t most, const Record& record) {
  for (uint32_t size = 1;; size = lm_bucket(size + 1, most)) {
    graph.capture(size, [record, size](const Recorder& to) { record(to, size); });
    if (size == most) return;
  }
}

namespace detail {

template <class Model>
struct LmTable {
  static const frt_lm_info& role(frt_model model) { return object<Model>(model)->role(); }
  static frt_status info(frt_model model, frt_lm_info* info) { return fill(info, role(model)); }
  static frt_status prefill_key(frt_model model, uint32_t rows, frt_shape_key* key) {
    const uint32_t most = role(model).prefill_chunk;
    if (rows == 0 || rows > most) return FRT_ERR_OUT_OF_RANGE;
    *key = lm_bucket(rows, most);
    return FRT_OK;
  }
  static frt_status decode_key(frt_model model, uint32_t batch, frt_shape_key* key,
                               uint32_t* entries) {
    const uint32_t most = role(model).max_batch;
    if (batch == 0 || batch > most) return FRT_ERR_OUT_OF_RANGE;
    *key = *entries = lm_bucket(batch, most);
    return FRT_OK;
  }
};

}  // namespace detail

// Of a model whose graphs are captured by capture_buckets; `const frt_lm_info& role() const` lives
// as long as the model.
template <class Model>
constexpr frt_role_lm_v1 lm_table() noexcept {
  using Table = detail::LmTable<Model>;
  return {sizeof(frt_role_lm_v1), 0,       Table::info, Table::prefill_key,
          Table::decode_key,      nullptr, nullptr};
}

}  // namespace frt
