// SPDX-License-Identifier: Apache-2.0
#include "calibrator.hpp"

#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <frt/role/contracts.hpp>
#include <limits>

#include "tables.hpp"

namespace frt::pi05 {
namespace {

// The largest magnitude; infinity if something is not finite.
double largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    const float magnitude = std::abs(value);
    if (!(magnitude <= std::numeric_limits<float>::max())) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, magnitude);
  }
  return largest;
}

}  // namespace

void Calibrator::note(const Engine& engine, const Variant& variant) {
  const Stream& stream = engine.stream();
  const Dims& dims = engine.dims();
  const auto branches = static_cast<std::uint64_t>(variant.branches);
  const auto text = engine.ports().prompt_length.download<std::int32_t>(branches, stream);
  const std::int64_t image_rows = variant.views * dims.cells();
  std::vector<std::byte> bytes;
  std::vector<float> values;
  Tap tap;
  tap.input = [&](const TapView& view) {
    const auto all = static_cast<std::size_t>(view.rows * view.width);
    const std::uint64_t size = bytes_of(view.dtype, view.rows * view.width);
    const Buffer buffer =
        engine.context().wrap(FRT_SPACE_DEVICE, const_cast<void*>(view.data), size, "input");
    bytes = buffer.download<std::byte>(size, stream);
    values.resize(all);
    models::convert_to_f32(view.dtype, bytes.data(), all, values.data());
    double& largest = measured_.largest[std::string(view.name)];
    const auto take = [&](std::int64_t first, std::int64_t rows) {
      largest = std::max(largest, largest_of(std::span(values).subspan(
                                      static_cast<std::size_t>(first * view.width),
                                      static_cast<std::size_t>(rows * view.width))));
    };
    if (!view.name.starts_with("prefix.")) return take(0, view.rows);
    // Each branch has room for more rows than its prompt takes.
    const std::int64_t room = image_rows + variant.prompt;
    for (std::int64_t part = 0; part * room < view.rows; ++part) {
      const auto branch = static_cast<std::size_t>(view.index + part);
      take(part * room, image_rows + std::clamp<std::int64_t>(text[branch], 0, variant.prompt));
    }
  };
  const Recorder recorder(stream);
  engine.observe(recorder, variant, &tap);
  engine.act(recorder, variant, &tap);
  stream.sync();
  ++measured_.frames;
}

// ---- frt.calibration/1 -----------------------------------------------------------------------

namespace {

// The model, if it can be calibrated.
Model& calibratable_model(frt_model model) {
  if (!model) throw Error(FRT_ERR_INVALID_ARGUMENT, "calibration: no model");
  Model& self = model_of(model);
  if (self.parts().options.fp8) {
    throw Error(FRT_ERR_BAD_STATE, "model '" + self.name() +
                                       "' runs in FP8; a calibration measures the model without: "
                                       "load it with precision = \"bf16\" or \"f32\"");
  }
  return self;
}

frt_status begin(frt_model model, frt_error* error) {
  return guard(error, [&] { calibratable_model(model).parts().calibrator->forget(); });
}

frt_status note(frt_model model, const frt_policy_shape* shape, frt_stream stream,
                frt_error* error) {
  return guard(error, [&] {
    const Model& self = calibratable_model(model);
    const Model::Parts& parts = self.parts();
    Variant variant;
    check(self.variant(read_table<frt_policy_shape>(shape, "calibration: the host"), variant),
          "calibration: no such variant");
    if (stream) {
      const frt_status waited = parts.context.table().stream_sync(stream);
      parts.context.checked(waited, "waiting for the inputs");
    }
    parts.calibrator->note(*parts.engine, variant);
  });
}

frt_status write(frt_model model, double margin, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    const Model& self = calibratable_model(model);
    if (!sink) throw Error(FRT_ERR_INVALID_ARGUMENT, "calibration: no sink");
    Measured measured = self.parts().calibrator->measured();
    measured.checkpoint = self.file_digests();
    measured.activations = dtype_name(self.parts().precision.activation);
    const std::string text = calibration_text(self.config().dims, measured, margin);
    return sink(user, text.data(), text.size());
  });
}

}  // namespace

const frt_calibration_v1& calibration_table() noexcept {
  static constexpr frt_calibration_v1 kTable = {sizeof(frt_calibration_v1), 0, begin, note, write};
  return kTable;
}

}  // namespace frt::pi05
