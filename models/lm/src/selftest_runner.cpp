// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/selftest_runner.hpp>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>

namespace frt::lm {
namespace {

constexpr std::uint32_t kSlot = 0;
constexpr std::int32_t kLogitBlock = 16;  // rows of logits computed at a time

std::int32_t fitting(const std::vector<std::int32_t>& sizes, std::size_t wanted) {
  for (const std::int32_t size : sizes) {
    if (static_cast<std::size_t>(size) >= wanted) return size;
  }
  return sizes.back();
}

std::vector<float> as_f32(frt_dtype dtype, std::span<const std::byte> data) {
  std::vector<float> values(data.size() * 8 / dtype_bits(dtype));
  models::convert_to_f32(dtype, data.data(), values.size(), values.data());
  return values;
}

}  // namespace

Runner::Runner(const Model& model) : model_(model), parts_(model.parts()) {
  frt_sampling_params greedy{};
  greedy.top_p = 1;
  greedy.repetition_penalty = 1;
  parts_.ports.sampling.upload(std::span<const frt_sampling_params>(&greedy, 1), parts_.stream);
  block_logits_ = parts_.context.alloc(
      FRT_SPACE_DEVICE, bytes_of(FRT_DTYPE_F32, kLogitBlock * model.config().vocabulary),
      "selftest.logits");
}

void Runner::clear() {
  parts_.state.clear(kSlot, parts_.stream);
  boundary_ = 0;
}

void Runner::set_step(std::span<const std::int32_t> tokens, std::int32_t position) {
  const Ports& ports = parts_.ports;
  const std::int32_t slot = kSlot;
  const auto length = static_cast<std::int32_t>(tokens.size());
  ports.tokens.upload(tokens, parts_.stream);
  ports.slot_ids.upload(std::span<const std::int32_t>(&slot, 1), parts_.stream);
  ports.positions.upload(std::span<const std::int32_t>(&position, 1), parts_.stream);
  ports.lengths.upload(std::span<const std::int32_t>(&length, 1), parts_.stream);
}

StepResult Runner::result() const {
  StepResult result;
  result.token = parts_.ports.next_tokens.download<std::int32_t>(1, parts_.stream).at(0);
  result.logits = parts_.ports.logits.download<float>(
      static_cast<std::uint64_t>(model_.config().vocabulary), parts_.stream);
  return result;
}

StepResult Runner::run_chunks(std::span<const std::int32_t> ids,
                              const std::function<void(std::int32_t rows)>& step) {
  const std::int64_t chunk = parts_.options.prefill_chunk;
  while (!ids.empty()) {
    // Up to the next absolute multiple of the chunk.
    const auto room = static_cast<std::size_t>(chunk - boundary_ % chunk);
    const auto part = ids.first(std::min(room, ids.size()));
    reserve(boundary_ + static_cast<std::int32_t>(part.size()));
    set_step(part, boundary_);
    step(static_cast<std::int32_t>(part.size()));
    boundary_ += static_cast<std::int32_t>(part.size());
    ids = ids.subspan(part.size());
  }
  return result();
}

StepResult Runner::prefill(std::span<const std::int32_t> ids) {
  return run_chunks(ids, [&](std::int32_t rows) {
    const std::int32_t size = fitting(parts_.prefill_sizes, static_cast<std::size_t>(rows));
    parts_.prefill.replay(step_key(StepKind::kPrefill, 1, size), parts_.stream);
  });
}

std::vector<float> Runner::device_rows(const TapView& view) const {
  const std::uint64_t bytes = bytes_of(view.dtype, view.rows * view.width);
  const Buffer device =
      parts_.context.wrap(FRT_SPACE_DEVICE, const_cast<void*>(view.data), bytes, "tap");
  return as_f32(view.dtype, device.download<std::byte>(bytes, parts_.stream));
}

void Runner::collect_logits(const Recorder& recorder, const TapView& view, std::int32_t first,
                            std::int32_t count, std::span<const std::int32_t> wanted,
                            std::vector<float>& out) const {
  const std::uint64_t row_bytes = bytes_of(view.dtype, view.width);
  const auto vocabulary = static_cast<std::size_t>(model_.config().vocabulary);
  for (std::int32_t block = 0; block < count; block += kLogitBlock) {
    const std::int32_t rows = std::min(kLogitBlock, count - block);
    const auto inside = [&](std::int32_t row) {
      return row >= first + block && row < first + block + rows;
    };
    if (std::none_of(wanted.begin(), wanted.end(), inside)) continue;
    parts_.recipe->head(
        recorder, parts_.weights->head,
        static_cast<const std::byte*>(view.data) + static_cast<std::uint64_t>(block) * row_bytes,
        rows, block_logits_.pointer<float>());
    const auto logits =
        block_logits_.download<float>(static_cast<std::uint64_t>(rows) * vocabulary, parts_.stream);
    for (const std::int32_t row : wanted) {
      if (!inside(row)) continue;
      const auto at =
          logits.begin() + (row - first - block) * static_cast<std::ptrdiff_t>(vocabulary);
      out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(vocabulary));
    }
  }
}

StepResult Runner::prefill_traced(std::span<const std::int32_t> ids, const TraceRequest& request,
                                  Trace& trace) {
  const Recorder recorder(parts_.stream);
  // Layers come interleaved when there are several chunks: keyed by layer, joined at the end.
  std::map<std::string, std::map<std::size_t, std::vector<float>>> layers;
  std::map<std::size_t, std::vector<std::int32_t>> experts;
  const StepResult last = run_chunks(ids, [&](std::int32_t count) {
    const std::int32_t first = boundary_;
    const auto pick = [&](const TapView& view, const auto& values, auto& out) {
      const auto width = static_cast<std::ptrdiff_t>(view.width);
      for (const std::int32_t row : request.rows) {
        if (row < first || row >= first + count) continue;
        const auto at = values.begin() + (row - first) * width;
        out.insert(out.end(), at, at + width);
      }
    };
    const Tap tap = [&](const TapView& view) {
      if (view.name == "hidden") {
        const std::vector<float> values = device_rows(view);
        trace.hidden.insert(trace.hidden.end(), values.begin(),
                            values.begin() + count * static_cast<std::ptrdiff_t>(view.width));
        collect_logits(recorder, view, first, count, request.logit_rows, trace.logits);
      } else if (view.name == "mtp.hidden") {
        const std::int32_t row = first > 0 ? first - 1 : 0;
        const std::int32_t rows = first > 0 ? count : count - 1;
        const std::vector<float> values = device_rows(view);
        const auto width = static_cast<std::ptrdiff_t>(view.width);
        for (const std::int32_t wanted : request.mtp_rows) {
          if (wanted < row || wanted >= row + rows) continue;
          const auto at = values.begin() + (wanted - row) * width;
          trace.mtp_hidden.insert(trace.mtp_hidden.end(), at, at + width);
        }
        collect_logits(recorder, view, row, rows, request.mtp_rows, trace.mtp_logits);
      } else if (view.name == "router_ids") {
        const std::uint64_t bytes = bytes_of(view.dtype, view.rows * view.width);
        const Buffer device =
            parts_.context.wrap(FRT_SPACE_DEVICE, const_cast<void*>(view.data), bytes, "tap");
        pick(view,
             device.download<std::int32_t>(static_cast<std::uint64_t>(view.rows * view.width),
                                           parts_.stream),
             experts[view.layer]);
      } else {
        pick(view, device_rows(view), layers[std::string(view.name)][view.layer]);
      }
    };
    parts_.recipe->prefill(recorder, fitting(parts_.prefill_sizes, static_cast<std::size_t>(count)),
                           &tap);
  });
  for (const auto& [name, by_layer] : layers) {
    std::vector<float>& joined = trace.rows[name];
    for (const auto& [layer, values] : by_layer) {
      joined.insert(joined.end(), values.begin(), values.end());
    }
  }
  for (const auto& [layer, ids_of_layer] : experts) {
    trace.router_ids.insert(trace.router_ids.end(), ids_of_layer.begin(), ids_of_layer.end());
  }
  return last;
}

void Runner::reserve(std::int32_t rows) {
  parts_.state.reserve(kSlot, static_cast<std::uint64_t>(boundary_),
                       static_cast<std::uint64_t>(rows), parts_.stream);
}

StepResult Runner::decode(std::int32_t token) {
  reserve(boundary_ + 1);
  set_step({&token, 1}, boundary_);
  parts_.decode.replay(step_key(StepKind::kDecode, parts_.decode_sizes.front(), 1), parts_.stream);
  ++boundary_;
  return result();
}

StepResult Runner::draft(std::int32_t token, std::int32_t position) {
  reserve(std::max(boundary_, position));
  set_step({&token, 1}, position);
  parts_.draft.replay(step_key(StepKind::kDraft, parts_.decode_sizes.front(), 2), parts_.stream);
  return result();
}

std::vector<std::int32_t> Runner::slot_pages(const frt_state_info& info) const {
  const std::uint64_t bytes = info.slot_pages * sizeof(std::int32_t);
  const Buffer row = parts_.context.wrap(
      FRT_SPACE_DEVICE,
      const_cast<std::int32_t*>(info.page_table) + std::uint64_t{kSlot} * info.slot_pages, bytes,
      "pages");
  return row.download<std::int32_t>(info.slot_pages, parts_.stream);
}

std::vector<float> Runner::region(const std::string& name, std::int64_t rows) const {
  const frt_capsule_layout& layout = parts_.layout->table();
  for (std::uint32_t i = 0; i < layout.region_count; ++i) {
    const frt_region& region = layout.regions[i];
    if (name != region.name) continue;
    const frt_state_info& info = parts_.state.info();
    const Buffer arena = Buffer::retain(parts_.context, info.buffer);
    const std::uint64_t start = parts_.state.region(name);
    std::vector<std::byte> bytes;
    const auto append = [&](std::uint64_t offset, std::uint64_t count) {
      const auto part = arena.download<std::byte>(count * region.row_bytes, parts_.stream, offset);
      bytes.insert(bytes.end(), part.begin(), part.end());
    };
    auto left = static_cast<std::uint64_t>(rows);
    if (region.kind == FRT_REGION_FIXED || !info.page_table) {
      append(start + kSlot * info.slot_stride, left);
      return as_f32(region.dtype, bytes);
    }
    for (const std::int32_t page : slot_pages(info)) {
      const std::uint64_t count = std::min<std::uint64_t>(left, info.page_rows);
      if (count == 0) break;
      append(start + static_cast<std::uint64_t>(page) * info.page_stride, count);
      left -= count;
    }
    return as_f32(region.dtype, bytes);
  }
  throw Error(FRT_ERR_MISMATCH, "the model has no state region '" + name +
                                    "'; these goldens belong to another model");
}

}  // namespace frt::lm
