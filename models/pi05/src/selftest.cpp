// SPDX-License-Identifier: Apache-2.0
// Goldens of the network. Runs are named by what varies: v2, v3, v101 (view masks), uncond (the
// other prompt), cfg<beta>, rtc.<schedule>, samples, steps<N>, h50. Large tensors of some files
// hold only the rows listed in <run>.rows_view and <run>.rows_prefix.
#include "selftest.hpp"

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <frt/models/images.hpp>
#include <frt/models/json.hpp>

#include "tables.hpp"

namespace frt::pi05 {
namespace {

namespace fs = std::filesystem;

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
  NetworkTest(const Model& model, const fs::path& file, Checks& checks)
      : model_(model), dims_(model.config().dims), goldens_(file), checks_(checks) {}

  void run() {
    read_inputs();
    const std::int64_t horizon = static_cast<std::int64_t>(noise_.size()) / dims_.action_dim;
    Setup setup = model_.parts().engine->setup();
    setup.max_prompt =
        std::max<std::int64_t>({setup.max_prompt, static_cast<std::int64_t>(tokens_.size()),
                                static_cast<std::int64_t>(uncond_.size())});
    setup.horizon = horizon;
    setup.samples = 3;
    setup.ways = 2;
    setup.steps = {10, 1, 4, 20};
    setup.guidance = Guidance::kFused;
    Runner runner(model_, setup);
    time_tables(runner);
    for (const char* run : {"v2", "v3", "v101"}) {
      if (goldens_.find(std::string(run) + ".mask")) stages(runner, run);
    }
    variations(runner);
    guidance(runner, "fused");
    continuation(runner);
    setup.guidance = Guidance::kSerial;
    Runner serial(model_, setup);
    guidance(serial, "serial");
    if (const Golden* noise = goldens_.find("h50.noise")) {
      setup.horizon = noise->shape.front();
      setup.ways = 1;
      Runner longer(model_, setup);
      RunInput input = plain("v2");
      input.noise = noise->values;
      compare("h50.actions", longer.run(input, false).at("actions"));
    }
    properties(runner);
    for (const std::string& name : goldens_.leftovers()) {
      checks_.skip(name, "nothing in this model computes it");
    }
  }

 private:
  void read_inputs() {
    const Setup& setup = model_.parts().engine->setup();
    models::ImageResizer resizer({dims_.image, dims_.image});
    for (std::int64_t view = 0; view < setup.views; ++view) {
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(dims_.image * dims_.image * 3));
      if (const Golden* image = goldens_.find("in.image" + std::to_string(view))) {
        pixels = image->bytes;
      } else if (const Golden* source = goldens_.find("in.source" + std::to_string(view))) {
        const auto raw = source_image(source->ids.at(0), source->ids.at(1), source->ids.at(2));
        resizer.pillow(raw, {source->ids.at(1), source->ids.at(2)}, pixels.data());
      }
      if (static_cast<std::int64_t>(pixels.size()) != dims_.image * dims_.image * 3) {
        throw Error(FRT_ERR_MISMATCH, "golden image " + std::to_string(view) +
                                          " has another size than the model's images; these "
                                          "goldens belong to another model");
      }
      append_view(pixels, setup.image_dtype);
    }
    goldens_.find("in.resized_crc32");  // that of what the resizer made: checked by its own tests
    const auto ids = [&](const char* name) {
      std::vector<std::int32_t> out;
      for (const std::int64_t id : goldens_.get(name).ids) {
        if (id < 0 || id >= dims_.vocabulary) {
          throw Error(FRT_ERR_MISMATCH, std::string("golden tensor ") + name + " holds token " +
                                            std::to_string(id) +
                                            "; these goldens belong to another model");
        }
        out.push_back(static_cast<std::int32_t>(id));
      }
      return out;
    };
    tokens_ = ids("in.tokens");
    uncond_ = ids("in.uncond_tokens");
    noise_ = goldens_.get("in.noise").values;
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

  RunInput plain(const std::string& run) const {
    RunInput input;
    input.images = images_;
    for (const std::int64_t bit : goldens_.get(run + ".mask").ids) {
      input.mask.push_back(static_cast<std::int32_t>(bit));
    }
    input.mask.resize(static_cast<std::size_t>(model_.parts().engine->setup().views), 0);
    input.prompts = {tokens_};
    input.noise = noise_;
    return input;
  }

  static Quantity quantity_of(const std::string& tensor) {
    if (tensor == "actions") return Quantity::kActions;
    const bool numbered = tensor.size() > 1 && tensor.size() < 4 &&
                          std::isdigit(static_cast<unsigned char>(tensor[1]));
    const bool flow = (tensor[0] == 'v' || tensor[0] == 'x') && numbered;
    return flow || tensor == "vc0" || tensor == "vu0" ? Quantity::kFlow : Quantity::kStage;
  }

  void compare(const std::string& name, std::span<const float> computed,
               const std::string& label = "") {
    const Golden* golden = goldens_.find(name);
    if (!golden) return;
    const std::string tensor = name.substr(name.rfind('.') + 1);
    checks_.values(label.empty() ? name : name + " " + label, quantity_of(tensor), computed,
                   golden->values);
  }

  void time_tables(const Runner& runner) {
    const TimeTables& tables = runner.engine().tables(10);
    const auto width = static_cast<std::size_t>(dims_.expert_width);
    const auto norms = static_cast<std::size_t>(dims_.modulations());
    compare("time.cond", tables.conditions);
    std::vector<float> first, last;
    for (std::size_t t = 0; t < 11; ++t) {
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

  void stages(Runner& runner, const std::string& run) {
    const Traced traced = runner.run(plain(run), true);
    const Golden* view_rows = goldens_.find(run + ".rows_view");
    const Golden* prefix_rows = goldens_.find(run + ".rows_prefix");
    // What the last prefix layer would leave is never computed.
    goldens_.find(run + ".prefix_x" + std::to_string(dims_.layers - 1));
    for (const auto& [tensor, values] : traced) {
      const std::string name = run + "." + tensor;
      const Golden* golden = goldens_.find(name);
      if (!golden) continue;
      const auto width = static_cast<std::size_t>(golden->shape.back());
      const bool view = tensor.starts_with("vit_") || tensor == "img_tokens";
      const Golden* rows = view ? view_rows : tensor.starts_with("prefix_") ? prefix_rows : nullptr;
      compare(name, picked(values, width, rows));
    }
    base_[run] = traced.at("actions");
  }

  void variations(Runner& runner) {
    RunInput other = plain("v2");
    other.prompts = {uncond_};
    compare("uncond.actions", runner.run(other, false).at("actions"));
    for (const std::int64_t steps : {1, 4, 20}) {
      RunInput input = plain("v2");
      input.steps = steps;
      const std::string name = "steps" + std::to_string(steps) + ".actions";
      if (goldens_.find(name)) compare(name, runner.run(input, false).at("actions"));
    }
    if (const Golden* noise = goldens_.find("samples.noise")) {
      RunInput input = plain("v2");
      input.noise = noise->values;
      input.samples = noise->shape.front();
      compare("samples.actions", runner.run(input, false).at("actions"));
    }
  }

  void guidance(Runner& runner, const std::string& form) {
    const auto half = static_cast<std::ptrdiff_t>(noise_.size());
    for (const char* text : {"1.0", "1.5", "2.5"}) {
      const std::string run = std::string("cfg") + text;
      if (!goldens_.find(run + ".actions")) continue;
      RunInput input = plain("v2");
      input.prompts = {tokens_, uncond_};
      input.beta.assign(20, std::stof(text));
      Traced traced = runner.run(input, true);
      const std::vector<float>& ways = traced.at("way_v0");
      if (form == "fused") {
        compare(run + ".vc0", std::vector<float>(ways.begin(), ways.begin() + half), form);
        compare(run + ".vu0", std::vector<float>(ways.begin() + half, ways.end()), form);
      }
      for (std::int64_t k = 1; k <= input.steps; ++k) {
        compare(run + ".x" + std::to_string(k), traced.at("x" + std::to_string(k)), form);
      }
      compare(run + ".actions", traced.at("actions"), form);
      if (form == "fused") {
        fused_[run] = traced.at("actions");
      } else {
        checks_.values(run + ".actions fused against serial", Quantity::kActions, fused_[run],
                       traced.at("actions"));
      }
    }
  }

  void continuation(Runner& runner) {
    const Golden* previous = goldens_.find("rtc.prev");
    const Golden* limits = goldens_.find("rtc.delay_horizon");
    if (!previous || !limits) return;
    const std::int64_t rows = previous->shape.front();
    const std::pair<const char*, std::uint32_t> schedules[] = {{"linear", FRT_SCHEDULE_LINEAR},
                                                               {"exp", FRT_SCHEDULE_EXPONENTIAL},
                                                               {"ones", FRT_SCHEDULE_ONES},
                                                               {"zeros", FRT_SCHEDULE_ZEROS}};
    for (const auto& [name, schedule] : schedules) {
      const std::string run = std::string("rtc.") + name;
      RunInput input = plain("v2");
      input.previous = previous->values;
      input.weights = continuation_weights(schedule, limits->ids.at(0), limits->ids.at(1), rows);
      input.control.guidance_cap = 10;
      compare(run + ".weights", input.weights);
      const Traced traced = runner.run(input, true);
      compare(run + ".x1", traced.at("x1"));
      compare(run + ".actions", traced.at("actions"));
    }
    for (const bool clean : {true, false}) {
      RunInput input = plain("v2");
      input.previous = previous->values;
      input.control.locked = 3;
      input.control.locked_clean = clean ? 1 : 0;
      compare(clean ? "rtc.trained.actions" : "rtc.lock.actions",
              runner.run(input, false).at("actions"));
    }
  }

  void properties(Runner& runner) {
    const std::vector<float>& base = base_.at("v2");
    RunInput input = plain("v2");
    // Another number of rows may be another way through a product: equal but for rounding.
    checks_.values("a larger prompt bucket changes nothing", Quantity::kActions,
                   runner.run(input, false, runner.engine().setup().max_prompt).at("actions"),
                   base);
    const std::vector<std::int64_t>& buckets = model_.parts().options.prompts;
    const auto bucket =
        std::lower_bound(buckets.begin(), buckets.end(), static_cast<std::int64_t>(tokens_.size()));
    if (bucket != buckets.end()) recorded(runner.run(input, false, *bucket).at("actions"));
    input.prompts = {tokens_, tokens_};
    input.beta.assign(20, 2.5f);
    const Traced equal = runner.run(input, true);
    const std::vector<float>& ways = equal.at("way_v3");
    const auto half = ways.begin() + static_cast<std::ptrdiff_t>(ways.size() / 2);
    checks_.bits("branches with one prompt are equal", std::vector<float>(ways.begin(), half),
                 std::vector<float>(half, ways.end()));
  }

  // The serving model's own graphs, whole and split, against the eager run of the same variant.
  void recorded(const std::vector<float>& base) {
    const Model::Parts& parts = model_.parts();
    const Setup& setup = parts.engine->setup();
    const bool same =
        setup.horizon * dims_.action_dim == static_cast<std::int64_t>(noise_.size()) &&
        setup.steps.front() == 10 && static_cast<std::int64_t>(tokens_.size()) <= setup.max_prompt;
    if (!same) {
      return checks_.skip("recorded graphs", "the model's horizon, steps or prompt limit differ");
    }
    const Ports& ports = parts.engine->ports();
    const Stream& stream = parts.engine->stream();
    const RunInput input = plain("v2");
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
    shape.ways = 1;
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
  Goldens goldens_;
  Checks& checks_;
  std::vector<std::byte> images_;
  std::vector<std::int32_t> tokens_, uncond_;
  std::vector<float> noise_;
  std::map<std::string, std::vector<float>> base_, fused_;
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
      if (name == "golden.safetensors" || name == "goldens.safetensors") {
        check_network(self, file, checks);
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
                      "' holds no goldens: expected golden.safetensors, cases.json or "
                      "encodings.json");
    }
  });
}

}  // namespace

void check_network(const Model& model, const fs::path& file, Checks& checks) {
  NetworkTest(model, file, checks).run();
}

const frt_selftest_v1& selftest_table() noexcept {
  static constexpr frt_selftest_v1 kTable = {sizeof(frt_selftest_v1), 0, pi05::run};
  return kTable;
}

}  // namespace frt::pi05
