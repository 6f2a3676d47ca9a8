// SPDX-License-Identifier: Apache-2.0
// frt-host calibrate: shows a policy frames and writes the static scales that it then needs to run
// in FP8 (frt/calibration.h). The model is loaded without FP8, whatever its manifest says, so the
// manifest of the robot can be used before the file that it names is there.
#include <fmt/format.h>
#include <frt/calibration.h>
#include <frt/io/file.hpp>
#include <frt/plugin.hpp>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "robot/policy_runner.hpp"
#include "robot/record/frames.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

struct CalibrateOptions {
  std::string manifest, model, out;
  std::vector<std::string> frames;
  uint32_t synthetic = 0, limit = 0;
  uint64_t seed = 1;
  double margin = 1.25;
  bool json = false;
};

// A plugin that can be calibrated has the option `precision`; its value fp8 is what needs the file.
std::vector<std::string> without_fp8(const core::Manifest& manifest) {
  std::vector<std::string> sets;
  for (const core::ModelSpec& model : manifest.models) {
    const ConfigView view(model.options.c());
    if (view.has("precision") && view.get_string("precision") == "fp8") {
      sets.push_back("model." + model.name + ".options.precision=auto");
    }
  }
  return sets;
}

class Calibration {
 public:
  Calibration(const LoadedModel& loaded, const CalibrateOptions& options)
      : loaded_(loaded),
        options_(options),
        policy_(policy_of(loaded)),
        runner_(policy_),
        table_(loaded.extension<frt_calibration_v1>(FRT_EXT_CALIBRATION)) {
    if (!table_) {
      throw ExitError(ExitCode::kPlugin, FRT_ERR_UNSUPPORTED,
                      loaded.sender() + ": its plugin offers no " + FRT_EXT_CALIBRATION);
    }
    checked("begin", [&](frt_error* error) { return table_->begin(policy_.handle(), error); });
  }

  std::size_t frames() const noexcept { return frames_; }

  void show_file(const std::string& path) {
    const FrameFile file(path, policy_.names());
    for (std::size_t i = 0; i < file.count() && !enough(); ++i) {
      const std::vector<frt_array> arrays = file.observation(i);
      frt_observation observation{};
      observation.struct_size = sizeof(observation);
      observation.array_count = static_cast<uint32_t>(arrays.size());
      observation.arrays = arrays.data();
      observation.prompt = file.prompt().empty() ? nullptr : file.prompt().c_str();
      runner_.observe(observation);
      note(runner_.observed_shape(), file.noise(i));
    }
  }

  // Random pixels and token ids, straight into the buffers.
  void show_synthetic() {
    const frt_policy_info& info = policy_.info();
    std::mt19937_64 random(options_.seed);
    const uint64_t pixels = uint64_t{info.views} * info.image_height * info.image_width * 3;
    const std::vector<int32_t> mask(info.views, 1);
    const uint32_t prompt = std::min(info.max_prompt, 32u);
    const uint32_t branches = std::max(info.guidance_branches, 1u);
    for (uint32_t frame = 0; frame < options_.synthetic && !enough(); ++frame) {
      if (info.image_dtype == FRT_DTYPE_U8) {
        std::vector<uint8_t> image(pixels);
        for (uint8_t& value : image) value = static_cast<uint8_t>(random() & 255);
        write<uint8_t>(info.images, image);
      } else {
        std::vector<float> image(pixels);
        for (float& value : image) value = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
        write<float>(info.images, image);
      }
      write<int32_t>(info.view_mask, mask);
      if (info.prompt_tokens) {
        std::vector<int32_t> ids(std::size_t{branches} * info.max_prompt);
        for (int32_t& id : ids) id = static_cast<int32_t>(random() % 256);
        write<int32_t>(info.prompt_tokens, ids);
        write<int32_t>(info.prompt_length,
                       std::vector<int32_t>(branches, static_cast<int32_t>(prompt)));
      }
      frt_policy_shape shape{};
      shape.struct_size = sizeof(shape);
      shape.views = info.views;
      shape.prompt = prompt;
      note(shape, {});
    }
  }

  std::string text() const {
    std::string text;
    const frt_sink sink = [](void* user, const void* data, uint64_t bytes) -> frt_status {
      if (!data && bytes > 0) return FRT_ERR_INVALID_ARGUMENT;
      return guard(nullptr, [&] {
        static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
      });
    };
    checked("write", [&](frt_error* error) {
      return table_->write(policy_.handle(), options_.margin, sink, &text, error);
    });
    return text;
  }

 private:
  bool enough() const noexcept { return options_.limit > 0 && frames_ >= options_.limit; }

  template <class Call>
  void checked(const char* function, const Call& call) const {
    frt_error error{};
    const core::SetupWatch watching = loaded_.watch(function);
    const frt_status status = contain(policy_.sender(), function, [&] { return call(&error); });
    check(status, error, policy_.sender());
  }

  template <class T>
  void write(frt_buffer buffer, const std::vector<T>& values) const {
    Buffer::retain(policy_.context(), buffer).upload(values, runner_.stream());
  }

  void note(frt_policy_shape shape, std::span<const float> noise) {
    shape.struct_size = sizeof(shape);
    shape.branches = 0;  // every branch
    const std::span<float> own = runner_.noise();
    if (noise.size() == own.size()) {
      std::copy(noise.begin(), noise.end(), own.begin());
    } else {
      fill_normal(options_.seed, frames_, own);
    }
    if (policy_.info().noise) {
      write(policy_.info().noise, std::vector<float>(own.begin(), own.end()));
    }
    checked("note", [&](frt_error* error) {
      return table_->note(policy_.handle(), &shape, runner_.stream().handle(), error);
    });
    ++frames_;
  }

  const LoadedModel& loaded_;
  const CalibrateOptions& options_;
  PolicyModel policy_;
  PolicyRunner runner_;
  std::optional<frt_calibration_v1> table_;
  std::size_t frames_ = 0;
};

ExitCode calibrate(App& app, const CalibrateOptions& options) {
  if (options.frames.empty() == (options.synthetic == 0)) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "give frames of the robot with --frames, or --synthetic N for a benchmark");
  }
  if (!(options.margin >= 1) || !std::isfinite(options.margin)) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    fmt::format("--margin {}: expected 1 or more", options.margin));
  }
  LoadOptions load;
  const core::Manifest manifest = app.manifests().load(options.manifest);
  load.sets = without_fp8(manifest);
  LoadedModel loaded =
      load_model(app, options.manifest, policy_name(manifest, options.model), load);
  Calibration calibration(loaded, options);
  for (const std::string& path : options.frames) calibration.show_file(path);
  if (options.synthetic > 0) {
    app.log().write("calibrate", FRT_LOG_WARNING,
                    "synthetic frames: good for benchmarks and tests, not for a robot");
    calibration.show_synthetic();
  }
  const std::string text = calibration.text();
  if (options.out.empty()) {
    write_out(text);
    return ExitCode::kOk;
  }
  io::write_file_atomically(options.out, text);
  if (options.json) {
    print_json(nlohmann::ordered_json{{"model", loaded.name()},
                                      {"frames", calibration.frames()},
                                      {"margin", options.margin},
                                      {"out", options.out}});
  } else {
    print_out("{}: {} frames, margin {}, written to {}\n", loaded.name(), calibration.frames(),
              options.margin, options.out);
  }
  return ExitCode::kOk;
}

}  // namespace

void add_calibrate_command(App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  Command command = app.program().add_subcommand(
      "calibrate", "Measure the static scales that a policy needs to run in FP8");
  command.examples({"calibrate policy.toml --frames episodes/*.npz --out calibration.json",
                    "calibrate policy.toml --synthetic 64 --out calibration.json"},
                   "The file is bound to the checkpoint's weights. Then, in [model.NAME.options]:\n"
                   "  precision = \"fp8\"\n"
                   "  calibration = \"FILE\"");
  command.add_option("manifest", options->manifest, "Read this manifest (TOML)").required();
  command
      .add_option("--frames", options->frames,
                  "Read frames from these files: episodes of `rollout --record`, or .npz files of "
                  "the arrays that the model reads")
      .type_name("FILE...");
  command.add_option("--synthetic", options->synthetic, "Use N random frames instead of files")
      .type_name("N");
  command.add_option("--limit", options->limit, "Use at most this many frames; 0: all")
      .type_name("N");
  command.add_option("--out", options->out, "Write the scales to this file; default: stdout")
      .type_name("FILE");
  command
      .add_option("--margin", options->margin,
                  "Represent values up to this factor times the largest one seen")
      .capture_default_str();
  command.add_option("--seed", options->seed, "Seed the noise and the synthetic frames")
      .capture_default_str();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command.add_flag("--json", options->json, "Print one JSON object instead of the summary");
  app.add_command(command, [&app, options] { return calibrate(app, *options); });
}

}  // namespace frt::host
