// SPDX-License-Identifier: Apache-2.0
// make-checkpoint - writes a checkpoint of random weights, of any size and weight format, in the
// naming of the official files: a stand-in for tests, benchmarks and first steps without the real
// one. Each thread writes a file; a folder that is complete has a config.json.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <frt/qwen36/presets.hpp>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stored_tensor.hpp"

namespace frt::tools {
namespace {

namespace fs = std::filesystem;
using models::Json;

struct Options {
  std::string folder, preset = "qwen3.6-tiny", format = "bf16", naming = "modelopt", tokenizer;
  std::vector<std::string> dimensions;
  std::uint64_t seed = 1;
  double shard_gigabytes = 5;
  unsigned threads = 0;
  bool force = false;
};

qwen36::Config chosen_config(const Options& options) {
  qwen36::Config config = qwen36::preset_config(options.preset);
  for (const std::string& text : options.dimensions) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "--set " + text + ": write NAME=VALUE");
    }
    qwen36::set_dimension(config, text.substr(0, equals), text.substr(equals + 1));
  }
  qwen36::validate(config, "preset " + options.preset);
  return config;
}

// What the official files of a format say in config.json; loaders decide by the tensors.
Json quantization_config(const Choice& choice, const qwen36::Config& config) {
  switch (choice.format) {
    case qwen36::Format::kBf16:
    case qwen36::Format::kF32:
      return {};
    case qwen36::Format::kFp8:
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {config.block_rows, config.block_columns}}};
    default:
      break;
  }
  const bool mixed =
      choice.format == qwen36::Format::kNvfp4Head8 || choice.format == qwen36::Format::kNvfp4Mixed;
  const bool packed = choice.format == qwen36::Format::kNvfp4 || mixed;
  if (packed && choice.naming == models::Nvfp4Naming::kCompressedTensors) {
    return {{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}};
  }
  return {{"quant_method", "modelopt"},
          {"quant_algo", mixed    ? "MIXED_PRECISION"
                         : packed ? "W4A16_NVFP4"
                                  : "FP8"}};
}

void write_json(const fs::path& path, const Json& json) {
  io::write_file_atomically(path, json.dump(2) + "\n");
}

// Groups of consecutive tensors that make up one file each.
std::vector<std::vector<StoredGroup>> shards_of(std::vector<StoredGroup> groups,
                                                std::uint64_t limit) {
  std::vector<std::vector<StoredGroup>> shards(1);
  std::uint64_t bytes = 0;
  for (StoredGroup& group : groups) {
    if (bytes > 0 && bytes + group.bytes() > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += group.bytes();
    shards.back().push_back(std::move(group));
  }
  return shards;
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from / "tokenizer.json")) {
    throw Error(FRT_ERR_NOT_FOUND, "--tokenizer " + from.string() + " has no tokenizer.json");
  }
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "vocab.json", "merges.txt"}) {
    if (fs::exists(from / name)) {
      fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
    }
  }
}

void prepare_folder(const Options& options) {
  const fs::path folder = options.folder;
  if (fs::exists(folder) && !fs::is_empty(folder) && !options.force) {
    throw Error(FRT_ERR_EXISTS, options.folder + " is not empty; choose another folder or --force");
  }
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name.starts_with("model")) fs::remove(entry.path());
  }
}

// A line on a terminal.  [any]
class Progress {
 public:
  explicit Progress(std::uint64_t total) : total_(total) {}
  void add(std::uint64_t bytes) {
    if (!shown_) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ += bytes;
    fmt::print(stderr, "\r{:5.1f} % of {:.2f} GB",
               100.0 * static_cast<double>(done_) / static_cast<double>(total_),
               static_cast<double>(total_) / 1e9);
  }
  void finish() const {
    if (shown_) fmt::print(stderr, "\n");
  }

 private:
  const bool shown_ = isatty(STDERR_FILENO) != 0;
  const std::uint64_t total_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
};

void write_shard(const fs::path& path, const std::vector<StoredGroup>& groups,
                 const qwen36::Config& config, const Choice& choice, Progress& progress) {
  models::SafetensorsWriter writer(path);
  writer.set_metadata("format", "pt");
  for (const StoredGroup& group : groups) {
    for (const StoredTensor& part : group.parts) {
      writer.declare(part.name, part.dtype, part.shape);
    }
  }
  for (const StoredGroup& group : groups) {
    generate(group, config, choice, [&](std::string_view part, std::span<const std::byte> data) {
      writer.write(part, data);
      progress.add(data.size());
    });
  }
  writer.finish();
}

// Calls body(0) .. body(count - 1) on several threads (0: one per core); throws the first error.
template <class Body>
void for_each_index(std::size_t count, unsigned threads, const Body& body) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  if (threads == 0) threads = std::max(std::thread::hardware_concurrency(), 1u);
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min<std::size_t>(threads, count);
    for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

void run(const Options& options) {
  const qwen36::Config config = chosen_config(options);
  Choice choice;
  choice.format = qwen36::parse_format(options.format);
  choice.naming = options.naming == "compressed-tensors" ? models::Nvfp4Naming::kCompressedTensors
                                                         : models::Nvfp4Naming::kModelOpt;
  choice.seed = options.seed;
  const auto limit = static_cast<std::uint64_t>(options.shard_gigabytes * 1e9);
  const auto shards = shards_of(plan_checkpoint(config, choice), limit);
  std::uint64_t total = 0;
  for (const auto& shard : shards) {
    for (const StoredGroup& group : shard) total += group.bytes();
  }
  const fs::path folder = options.folder;
  prepare_folder(options);
  const auto space = fs::space(folder);
  if (space.available < total) {
    throw Error(FRT_ERR_IO, fmt::format("{} needs {:.1f} GB, {:.1f} GB are free there",
                                        options.folder, static_cast<double>(total) / 1e9,
                                        static_cast<double>(space.available) / 1e9));
  }
  if (!options.tokenizer.empty()) copy_tokenizer(options.tokenizer, folder);

  std::map<std::string, std::string> file_of_tensor;
  const auto name_of = [&](std::size_t i) {
    return shards.size() == 1
               ? std::string("model.safetensors")
               : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  };
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const StoredGroup& group : shards[i]) {
      for (const StoredTensor& part : group.parts) file_of_tensor[part.name] = name_of(i);
    }
  }
  Progress progress(total);
  for_each_index(shards.size(), options.threads, [&](std::size_t i) {
    write_shard(folder / name_of(i), shards[i], config, choice, progress);
  });
  progress.finish();
  if (shards.size() > 1) {
    models::write_safetensors_index(folder / "model.safetensors.index.json", file_of_tensor, total);
  }
  Json json = qwen36::config_json(config);
  const Json quantization = quantization_config(choice, config);
  if (!quantization.is_null()) json["quantization_config"] = quantization;
  write_json(folder / "config.json", json);
  fmt::print("{}: {}, {}, {} tensors in {} file{}, {:.3f} GB\n", options.folder,
             qwen36::describe(config), options.format, file_of_tensor.size(), shards.size(),
             shards.size() == 1 ? "" : "s", static_cast<double>(total) / 1e9);
}

std::string preset_list() {
  std::string text = "Presets:\n";
  for (const qwen36::Preset& preset : qwen36::presets()) {
    text += fmt::format("  {:<22}{}\n", preset.name, preset.doc);
  }
  text += "Dimensions for --set:";
  for (const std::string_view key : qwen36::dimension_keys()) text += " " + std::string(key);
  return text;
}

}  // namespace
}  // namespace frt::tools

int main(int argc, char** argv) {
  frt::tools::Options options;
  CLI::App app("Writes a Qwen3.6 checkpoint of random weights.", "make-checkpoint");
  app.add_option("folder", options.folder, "Where to write it")->required();
  app.add_option("--preset", options.preset, "The configuration to start from")
      ->capture_default_str();
  app.add_option("--set", options.dimensions, "Change a dimension, e.g. hidden=256 (repeatable)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--format", options.format,
                 "bf16, f32, fp8, fp8-tensor, fp8-channel, nvfp4, nvfp4-fp8-head, nvfp4-mixed")
      ->capture_default_str();
  app.add_option("--nvfp4-naming", options.naming, "How NVFP4 weights are named")
      ->check(CLI::IsMember({"modelopt", "compressed-tensors"}))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Other values")->capture_default_str();
  app.add_option("--tokenizer", options.tokenizer, "Copy tokenizer and chat files from this folder")
      ->type_name("DIR");
  app.add_option("--shard-size", options.shard_gigabytes, "Largest file in GB")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Files written at once; 0: one per core. Each needs some 0.1 GB of memory")
      ->capture_default_str();
  app.add_flag("--force", options.force, "Replace the checkpoint in a folder that is not empty");
  app.footer(frt::tools::preset_list());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    frt::tools::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
