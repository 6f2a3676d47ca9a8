// SPDX-License-Identifier: Apache-2.0
// Goldens of the network, whichever runs the file holds (selftest_plan.hpp). Large tensors of some
// files hold only the rows listed in <run>.rows_view and <run>.rows_prefix.
#include "selftest.hpp"

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <frt/models/images.hpp>
#include <frt/models/json.hpp>
#include <iterator>

#include "selftest_plan.hpp"
#include "tables.hpp"

namespace frt::pi05 {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostSamples = 64;
// Of continuations, where a file does not say otherwise.
constexpr std::int64_t kDelay = 2, kExecutionHorizon = 6;
constexpr float kGuidanceCap = 10;
constexpr std::pair<std::string_view, std::uint32_t> kSchedules[] = {
    {"linear", FRT_SCHEDULE_LINEAR},
    {"exp", FRT_SCHEDULE_EXPONENTIAL},
    {"ones", FRT_SCHEDULE_ONES},
    {"zeros", FRT_SCHEDULE_ZEROS}};

// Rows of a matrix.
std::vector<float> picked(const std::vector<float>& values, std::size_t width, const Golden* rows) {
  if (!rows) return values;
  std::vector<float> out;
  for (const std::int64_t row : rows->ids) {
    if (row < 0 || (static_cast<std::size_t>(row) + 1) * width > values.size()) {
      throw Error(FRT_ERR_MISMATCH, "golden rows up to " + std::to_string(row) +
                                        " are not in a tensor of " +
                                        std::to_string(values.size() / width) +
                                        " rows; these goldens belong to another model");
    }
    const auto at =
        values.begin() + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(width);
    out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(width));
  }
  return out;
}

// A test image without a file, by the formula of the goldens' documentation.
std::vector<std::uint8_t> source_image(std::int64_t i, std::int64_t height, std::int64_t width) {
  std::vector<std::uint8_t> image;
  image.reserve(static_cast<std::size_t>(height * width * 3));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        image.push_back(static_cast<std::uint8_t>(
            (x * (3 + i) + y * (5 + 2 * i) + 31 * c + ((x * y) >> 3) * 7) % 256));
      }
    }
  }
  return image;
}

class NetworkTest {
 public:
  NetworkTest(const Model& model, const Goldens& goldens, Checks& checks)
      : model_(model),
        dims_(model.config().dims),
        goldens_(goldens),
        checks_(checks),
        plan_(read_plan(goldens, model.parts().engine->setup().views,
                        model.parts().engine->setup().steps.front())) {}

  void run() {
    read_inputs();
    Setup setup = model_.parts().engine->setup();
    setup.max_prompt =
        std::max<std::int64_t>({setup.max_prompt, static_cast<std::int64_t>(tokens_.size()),
                                static_cast<std::int64_t>(uncond_.size())});
    setup.horizon = static_cast<std::int64_t>(noise_.size()) / dims_.action_dim;
    const std::int64_t serving_steps = setup.steps.front();
    setup.steps = {plan_.steps};
    for (const NumberedRun& run : plan_.step_counts) add_steps(setup, run.number);
    add_steps(setup, serving_steps);
    setup.samples = samples();
    setup.branches = uncond_.empty() ? 1 : 2;
    setup.guidance = Guidance::kFused;
    Runner runner(model_, setup);
    time_tables(runner);
    for (const ViewRun& run : plan_.views) {
      const Traced traced = runner.run(plain(run), true);
      compare_all(run.name, traced);
      step_conditions(runner, run.name);
      if (&run == &plan_.base_run()) base_ = traced.at("actions");
    }
    variations(runner);
    guidance(runner, "fused");
    continuation(runner);
    setup.guidance = Guidance::kSerial;
    Runner serial(model_, setup);
    guidance(serial, "serial");
    for (const NumberedRun& run : plan_.horizons) {
      setup.horizon = run.number;
      setup.samples = setup.branches = 1;
      Runner longer(model_, setup);
      RunInput input = plain(plan_.base_run());
      input.noise = goldens_.get(run.name + ".noise").values;
      require_rows(run.name + ".noise", input.noise, run.number);
      compare_all(run.name, longer.run(input, true));
    }
    properties(runner, serving_steps);
    for (const std::string& name : goldens_.leftovers()) {
      checks_.skip(name, "nothing in this model computes it");
    }
  }

 private:
  static void add_steps(Setup& setup, std::int64_t steps) {
    if (std::find(setup.steps.begin(), setup.steps.end(), steps) == setup.steps.end()) {
      setup.steps.push_back(steps);
    }
  }

  // Noises of the run `samples`; 1 where there is none.
  std::int64_t samples() const {
    if (!goldens_.has("samples.noise")) return 1;
    const Golden& noise = goldens_.get("samples.noise");
    const std::int64_t count = noise.shape.size() == 3 ? noise.shape.front() : 0;
    if (count < 1 || count > kMostSamples) {
      throw Error(FRT_ERR_FORMAT, goldens_.file() +
                                      ": samples.noise: expected (samples, horizon, actions) with "
                                      "1 to " +
                                      std::to_string(kMostSamples) + " samples");
    }
    require_rows("samples.noise", noise.values,
                 count * static_cast<std::int64_t>(noise_.size()) / dims_.action_dim);
    return count;
  }

  void require_rows(const std::string& name, const std::vector<float>& values,
                    std::int64_t rows) const {
    if (static_cast<std::int64_t>(values.size()) == rows * dims_.action_dim) return;
    throw Error(FRT_ERR_MISMATCH, "golden tensor " + name + " has " +
                                      std::to_string(values.size()) + " values, expected " +
                                      std::to_string(rows) + " rows of " +
                                      std::to_string(dims_.action_dim));
  }

  void read_inputs() {
    const Setup& setup = model_.parts().engine->setup();
    for (std::int64_t view = 0; view < setup.views; ++view) {
      append_view(read_view(view), setup.image_dtype);
    }
    // That of what the resizer made: checked by its own tests.
    goldens_.find(plan_.inputs + "resized_crc32");
    const auto ids = [&](const std::string& name) {
      std::vector<std::int32_t> out;
      for (const std::int64_t id : goldens_.get(name).ids) {
        if (id < 0 || id >= dims_.vocabulary) {
          throw Error(FRT_ERR_MISMATCH, "golden tensor " + name + " holds token " +
                                            std::to_string(id) +
                                            "; these goldens belong to another model");
        }
        out.push_back(static_cast<std::int32_t>(id));
      }
      return out;
    };
    tokens_ = ids(plan_.inputs + "tokens");
    if (goldens_.has(plan_.inputs + "uncond_tokens")) uncond_ = ids(plan_.inputs + "uncond_tokens");
    noise_ = goldens_.get(plan_.inputs + "noise").values;
    const std::size_t width = static_cast<std::size_t>(dims_.action_dim);
    if (tokens_.empty() || noise_.empty() || noise_.size() % width != 0) {
      throw Error(FRT_ERR_MISMATCH, goldens_.file() + ": " + std::to_string(tokens_.size()) +
                                        " prompt tokens and " + std::to_string(noise_.size()) +
                                        " values of noise, expected some of both, the noise in "
                                        "rows of " +
                                        std::to_string(width));
    }
  }

  // (image, image, 3); black where the file has none.
  std::vector<std::uint8_t> read_view(std::int64_t view) const {
    const std::string number = std::to_string(view);
    const auto side = static_cast<std::size_t>(dims_.image);
    std::vector<std::uint8_t> pixels(side * side * 3);
    if (const Golden* image = goldens_.find(plan_.inputs + "image" + number)) {
      pixels = image->bytes;
      const bool planes = image->shape.size() == 3 && image->shape[0] == 3 && image->shape[2] != 3;
      if (planes && pixels.size() == side * side * 3) {
        for (std::size_t i = 0; i < side * side; ++i) {
          for (std::size_t c = 0; c < 3; ++c) pixels[i * 3 + c] = image->bytes[c * side * side + i];
        }
      }
    } else if (const Golden* source = goldens_.find(plan_.inputs + "source" + number)) {
      const std::vector<std::int64_t>& ids = source->ids;
      if (ids.size() != 3 || std::min(ids[1], ids[2]) < 1 || std::max(ids[1], ids[2]) > 16384) {
        throw Error(FRT_ERR_FORMAT, goldens_.file() + ": " + plan_.inputs + "source" + number +
                                        ": expected index, height and width");
      }
      const auto raw = source_image(ids[0], ids[1], ids[2]);
      models::ImageResizer resizer({dims_.image, dims_.image});
      resizer.pillow(raw, {ids[1], ids[2]}, pixels.data());
    }
    if (pixels.size() != side * side * 3) {
      throw Error(FRT_ERR_MISMATCH, "golden image " + number +
                                        " has another size than the model's images; these "
                                        "goldens belong to another model");
    }
    return pixels;
  }

  void append_view(const std::vector<std::uint8_t>& pixels, frt_dtype dtype) {
    if (dtype == FRT_DTYPE_U8) {
      const auto* bytes = reinterpret_cast<const std::byte*>(pixels.data());
      images_.insert(images_.end(), bytes, bytes + pixels.size());
      return;
    }
    std::vector<float> wide;
    for (const std::uint8_t pixel : pixels) {
      wide.push_back(static_cast<float>(static_cast<double>(pixel) / 255.0 * 2.0 - 1.0));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(wide.data());
    images_.insert(images_.end(), bytes, bytes + wide.size() * sizeof(float));
  }

  RunInput plain(const ViewRun& run) const {
    RunInput input;
    input.images = images_;
    input.mask = run.mask;
    input.prompts = {tokens_};
    input.noise = noise_;
    input.steps = plan_.steps;
    return input;
  }

  static Quantity quantity_of(const std::string& tensor) {
    if (tensor == "actions") return Quantity::kActions;
    const auto numbered = [&](std::string_view word) {
      const std::string_view name = tensor;
      return name.starts_with(word) && name.size() > word.size() &&
             name.find_first_not_of("0123456789", word.size()) == std::string_view::npos;
    };
    const bool flow = numbered("v") || numbered("x") || numbered("vc") || numbered("vu");
    return flow ? Quantity::kFlow : Quantity::kStage;
  }

  void compare(const std::string& name, std::span<const float> computed,
               const std::string& label = "", float beta = 1) {
    const Golden* golden = goldens_.find(name);
    if (!golden) return;
    const std::string tensor = name.substr(name.rfind('.') + 1);
    checks_.values(label.empty() ? name : name + " " + label, quantity_of(tensor), computed,
                   golden->values, beta);
  }

  // Every tensor of the run that the file holds.
  void compare_all(const std::string& run, const Traced& traced, const std::string& label = "",
                   float beta = 1) {
    const Golden* view_rows = goldens_.find(run + ".rows_view");
    const Golden* prefix_rows = goldens_.find(run + ".rows_prefix");
    // What the last prefix layer would leave is never computed.
    goldens_.find(run + ".prefix_x" + std::to_string(dims_.layers - 1));
    for (const auto& [tensor, values] : traced) {
      const std::string name = run + "." + tensor;
      const bool view = tensor.starts_with("vit_") || tensor == "img_tokens";
      const Golden* rows = view ? view_rows : tensor.starts_with("prefix_") ? prefix_rows : nullptr;
      if (!goldens_.has(name)) continue;
      if (!rows) {
        compare(name, values, label, beta);
        continue;
      }
      const std::vector<std::int64_t>& shape = goldens_.get(name).shape;
      const std::int64_t width = shape.empty() ? 0 : shape.back();
      if (width < 1) {
        throw Error(FRT_ERR_FORMAT, goldens_.file() + ": " + name + ": expected rows of values");
      }
      compare(name, picked(values, static_cast<std::size_t>(width), rows), label, beta);
    }
  }

  void time_tables(const Runner& runner) {
    const TimeTables& tables = runner.engine().tables(plan_.steps);
    const auto width = static_cast<std::size_t>(dims_.expert_width);
    const auto norms = static_cast<std::size_t>(dims_.modulations());
    compare("time.cond", tables.conditions);
    std::vector<float> first, last;
    for (std::size_t t = 0; t <= static_cast<std::size_t>(plan_.steps); ++t) {
      const auto row =
          tables.modulations.begin() + static_cast<std::ptrdiff_t>(t * norms * 3 * width);
      const auto size = static_cast<std::ptrdiff_t>(3 * width);
      first.insert(first.end(), row, row + size);
      const auto end = row + static_cast<std::ptrdiff_t>(norms) * size;
      last.insert(last.end(), end - size, end);
    }
    compare("time.mod_l0_input", first);
    compare("time.mod_final", last);
  }

  // Some files have the conditions of the steps beside each run, too.
  void step_conditions(const Runner& runner, const std::string& run) {
    const std::vector<float>& all = runner.engine().tables(plan_.steps).conditions;
    const auto width = static_cast<std::size_t>(dims_.expert_width);
    for (std::size_t k = 0; k < static_cast<std::size_t>(plan_.steps); ++k) {
      compare(run + ".cond" + std::to_string(k), std::span(all).subspan(k * width, width));
    }
  }

  void variations(Runner& runner) {
    if (goldens_.has("uncond.actions") && !uncond_.empty()) {
      RunInput other = plain(plan_.base_run());
      other.prompts = {uncond_};
      compare_all("uncond", runner.run(other, true));
    }
    for (const NumberedRun& run : plan_.step_counts) {
      RunInput input = plain(plan_.base_run());
      input.steps = run.number;
      compare_all(run.name, runner.run(input, true));
    }
    if (const Golden* noise = goldens_.find("samples.noise")) {
      RunInput input = plain(plan_.base_run());
      input.noise = noise->values;
      input.samples = samples();
      compare_all("samples", runner.run(input, true));
    }
  }

  std::vector<float> every_step(const Runner& runner, float beta) const {
    return std::vector<float>(static_cast<std::size_t>(runner.engine().setup().max_steps()), beta);
  }

  void guidance(Runner& runner, const std::string& form) {
    if (uncond_.empty()) return;
    const auto half = static_cast<std::ptrdiff_t>(noise_.size());
    for (const GuidedRun& run : plan_.guided) {
      RunInput input = plain(plan_.base_run());
      input.prompts = {tokens_, uncond_};
      input.beta = every_step(runner, run.beta);
      Traced traced = runner.run(input, true);
      for (std::int64_t k = 0; form == "fused" && k < input.steps; ++k) {
        const std::string step = std::to_string(k);
        const std::vector<float>& branches = traced.at("branch_v" + step);
        traced["vc" + step] = std::vector<float>(branches.begin(), branches.begin() + half);
        traced["vu" + step] = std::vector<float>(branches.begin() + half, branches.end());
      }
      compare_all(run.name, traced, form, run.beta);
      if (form == "fused") {
        fused_[run.name] = traced.at("actions");
      } else {
        checks_.values(run.name + ".actions fused against serial", Quantity::kActions,
                       fused_[run.name], traced.at("actions"), run.beta);
      }
    }
  }

  void continuation(Runner& runner) {
    const Golden* previous = goldens_.find("rtc.prev");
    if (!previous) return;
    const std::int64_t rows = static_cast<std::int64_t>(noise_.size()) / dims_.action_dim;
    require_rows("rtc.prev", previous->values, rows);
    std::vector<std::int64_t> limits = {kDelay, kExecutionHorizon};
    if (const Golden* stated = goldens_.find("rtc.delay_horizon")) limits = stated->ids;
    if (limits.size() != 2) {
      throw Error(FRT_ERR_FORMAT,
                  goldens_.file() + ": rtc.delay_horizon: expected a delay and a horizon");
    }
    for (const ContinuedRun& run : plan_.continued) {
      RunInput input = plain(plan_.base_run());
      input.previous = previous->values;
      input.control.guidance_cap = kGuidanceCap;
      const auto known = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                      [&](const auto& one) { return one.first == run.schedule; });
      if (known != std::end(kSchedules)) {
        input.weights = continuation_weights(known->second, limits[0], limits[1], rows);
        compare(run.name + ".weights", input.weights);
      } else {  // a schedule of the file's own
        input.weights = goldens_.get(run.name + ".weights").values;
        if (input.weights.size() != static_cast<std::size_t>(rows)) {
          throw Error(FRT_ERR_MISMATCH, goldens_.file() + ": " + run.name +
                                            ".weights: expected one per row of the noise");
        }
      }
      compare_all(run.name, runner.run(input, true));
    }
    for (const bool clean : {true, false}) {
      const std::string run = clean ? "rtc.trained" : "rtc.lock";
      if (!goldens_.has(run + ".actions")) continue;
      RunInput input = plain(plan_.base_run());
      input.previous = previous->values;
      const std::int64_t locked =
          locked_rows(goldens_.get(run + ".actions").values, previous->values,
                      static_cast<std::size_t>(dims_.action_dim));
      input.control.locked = static_cast<std::int32_t>(locked);
      input.control.locked_clean = clean ? 1 : 0;
      compare_all(run, runner.run(input, true));
    }
  }

  void properties(Runner& runner, std::int64_t serving_steps) {
    RunInput input = plain(plan_.base_run());
    // Another number of rows may be another way through a product: equal but for rounding.
    checks_.values("a larger prompt bucket changes nothing", Quantity::kActions,
                   runner.run(input, false, runner.engine().setup().max_prompt).at("actions"),
                   base_);
    const std::vector<std::int64_t>& buckets = model_.parts().options.prompts;
    const auto bucket =
        std::lower_bound(buckets.begin(), buckets.end(), static_cast<std::int64_t>(tokens_.size()));
    if (bucket != buckets.end()) {
      input.steps = serving_steps;
      recorded(runner.run(input, false, *bucket).at("actions"));
      input.steps = plan_.steps;
    } else {
      checks_.skip("recorded graphs", "the golden prompt has " + std::to_string(tokens_.size()) +
                                          " tokens, the largest prompt bucket " +
                                          std::to_string(buckets.back()));
    }
    if (runner.engine().setup().branches < 2) return;
    input.prompts = {tokens_, tokens_};
    input.beta = every_step(runner, 2.5f);
    const Traced equal = runner.run(input, true);
    const std::int64_t step = std::min<std::int64_t>(3, plan_.steps - 1);
    const std::vector<float>& branches = equal.at("branch_v" + std::to_string(step));
    const auto half = branches.begin() + static_cast<std::ptrdiff_t>(branches.size() / 2);
    // Bits are promised for up to 16 rows (frt/ops/linear.h); here one branch's rows are others of
    // a larger product, so it is rounding that may differ.
    checks_.values("branches with one prompt are equal", Quantity::kActions,
                   std::vector<float>(branches.begin(), half),
                   std::vector<float>(half, branches.end()));
  }

  // The serving model's own graphs, whole and split, against the eager run of the same variant.
  void recorded(const std::vector<float>& base) {
    const Model::Parts& parts = model_.parts();
    const Setup& setup = parts.engine->setup();
    const bool same =
        setup.horizon * dims_.action_dim == static_cast<std::int64_t>(noise_.size()) &&
        static_cast<std::int64_t>(tokens_.size()) <= setup.max_prompt;
    if (!same) {
      return checks_.skip("recorded graphs", "the model's horizon or prompt limit differ");
    }
    const Ports& ports = parts.engine->ports();
    const Stream& stream = parts.engine->stream();
    const RunInput input = plain(plan_.base_run());
    ports.images.upload(std::span<const std::byte>(input.images), stream);
    ports.view_mask.upload(input.mask, stream);
    ports.prompt_tokens.upload(tokens_, stream);
    ports.prompt_length.upload(std::vector<std::int32_t>{static_cast<std::int32_t>(tokens_.size())},
                               stream);
    ports.noise.upload(noise_, stream);
    frt_policy_shape shape{};
    shape.struct_size = sizeof(shape);
    shape.views = static_cast<std::uint32_t>(std::count(input.mask.begin(), input.mask.end(), 1));
    shape.prompt = static_cast<std::uint32_t>(tokens_.size());
    shape.branches = 1;
    const auto replay = [&](const Graph& graph, GraphKind kind) {
      frt_shape_key key = 0;
      check(model_.key(kind, shape, key), "key of a variant");
      graph.replay(key, stream);
    };
    const auto actions = [&] { return ports.actions.download<float>(noise_.size(), stream); };
    replay(parts.infer, GraphKind::kInfer);
    checks_.bits("the recorded inference equals the eager one", actions(), base);
    replay(parts.observe, GraphKind::kObserve);
    replay(parts.act, GraphKind::kAct);
    checks_.bits("observe and act equal the whole inference", actions(), base);
    replay(parts.vision, GraphKind::kVision);
    replay(parts.prefix, GraphKind::kPrefix);
    replay(parts.act, GraphKind::kAct);
    checks_.bits("vision, prefix and act equal the whole inference", actions(), base);
    replay(parts.act, GraphKind::kAct);
    checks_.bits("a second act on one context gives the same", actions(), base);
  }

  const Model& model_;
  const Dims& dims_;
  const Goldens& goldens_;
  Checks& checks_;
  const GoldenPlan plan_;
  std::vector<std::byte> images_;
  std::vector<std::int32_t> tokens_, uncond_;
  std::vector<float> noise_;
  std::vector<float> base_;  // actions
  std::map<std::string, std::vector<float>> fused_;
};

frt_status run(frt_model model, const char* path, frt_selftest_report report, void* user,
               frt_error* error) {
  return guard(error, [&] {
    if (!model || !path || !report) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "selftest: model, path and report must be given");
    }
    const Model& self = model_of(model);
    const Model::Parts& parts = self.parts();
    Checks checks(report, user,
                  parts.weights.fp8                             ? Gates::kFp8
                  : parts.precision.activation == FRT_DTYPE_F32 ? Gates::kExact
                                                                : Gates::kBf16);
    std::vector<fs::path> files;
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::recursive_directory_iterator(path))
        files.push_back(entry.path());
      std::sort(files.begin(), files.end());
    } else {
      files.push_back(path);
    }
    std::size_t found = 0;
    for (const fs::path& file : files) {
      const std::string name = file.filename().string();
      if (file.extension() == ".safetensors") {
        // Checkpoints and the tensors of policy cases may lie in the same folder.
        if (!check_network(self, file, checks)) continue;
      } else if (name == "cases.json") {
        check_policies(self, file, checks);
      } else if (name == "encodings.json") {
        check_tokenizer(self, file, checks);
      } else {
        continue;
      }
      ++found;
    }
    if (found == 0) {
      throw Error(FRT_ERR_NOT_FOUND,
                  std::string("'") + path +
                      "' holds no goldens: expected a safetensors file with in.tokens, cases.json "
                      "or encodings.json");
    }
  });
}

}  // namespace

bool check_network(const Model& model, const fs::path& file, Checks& checks) {
  if (!holds_network(file)) return false;
  NetworkTest(model, Goldens(file), checks).run();
  return true;
}

const frt_selftest_v1& selftest_table() noexcept {
  static constexpr frt_selftest_v1 kTable = {sizeof(frt_selftest_v1), 0, pi05::run};
  return kTable;
}

}  // namespace frt::pi05
