// SPDX-License-Identifier: Apache-2.0
// model_rig.hpp - a model, of the plugin frt.qwen36 or another, loaded as a host loads it: plugins
// from the build folder, options through a manifest. The backend is frt.cpu, or what
// FRT_TEST_BACKEND says, from the folder FRT_TEST_BACKEND_DIR: so that every test of a model is one
// of any backend.
#pragma once

#include <doctest/doctest.h>
#include <frt/model.h>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <frt/exec.hpp>

#include <frt/role/lm.h>
#include <frt/selftest.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frt::test {

inline const std::filesystem::path kFixtures = FRT_FIXTURES_DIR;

inline std::string test_backend() {
  const char* name = std::getenv("FRT_TEST_BACKEND");
  return name && *name ? name : "frt.cpu";
}
inline bool on_cpu() {
  return test_backend() == "frt.cpu";
}

class ModelRig {
 public:
  // `options`, `device_options` and `device_settings` are TOML lines.
  explicit ModelRig(const std::string& checkpoint, const std::string& options = "",
                    const std::string& device_options = "", uint32_t flags = 0,
                    const std::string& device_settings = "",
                    const std::string& plugin = "frt.qwen36") {
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &registry_;
    const std::string text = "schema = 1\n[device.d]\nbackend = \"" + test_backend() + "\"\n" +
                             device_settings + "\n[device.d.options]\n" + device_options +
                             "\n[model.m]\nplugin = \"" + plugin +
                             "\"\ndevice = \"d\"\ncheckpoint = \"" + checkpoint +
                             "\"\n[model.m.options]\n" + options + "\n";
    try {
      core::Manifest manifest = core::parse_manifest(text, "/m.toml", request);
      const core::ModelSpec spec = *manifest.find_model("m");
      runtime_ = std::make_unique<core::Runtime>(std::move(manifest), registry_, services_);
      context = Context(core::exec_table(), runtime_->device("d").context);
      table = runtime_->model_plugin("m").find<frt_model_v1>(FRT_EXT_MODEL);
      frt_model_params params{
          sizeof(frt_model_params),  flags,           context, spec.name.c_str(),
          spec.checkpoint().c_str(), spec.options.c()};
      frt_error error{};
      check(table->create(runtime_->model_plugin("m").handle(), &params, &model, &error), error);
    } catch (const core::DiagnosticError& error) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, error.what());
    }
    context.ready();
  }
  ~ModelRig() {
    if (model) table->destroy(model);
  }
  ModelRig(const ModelRig&) = delete;
  ModelRig& operator=(const ModelRig&) = delete;

  template <class Table>
  const Table* extension(const char* id) const {
    return static_cast<const Table*>(table->extension(model, id));
  }
  frt_lm_info lm() const {
    frt_lm_info info{};
    info.struct_size = sizeof(info);
    check(extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM)->info(model, &info), "role info");
    return info;
  }

  Context context;
  const frt_model_v1* table = nullptr;
  frt_model model = nullptr;

 private:
  core::Log log_{[] {
    core::LogOptions options;
    options.level = FRT_LOG_ERROR;
    return options;
  }()};
  core::HostServices services_{log_};
  core::Registry registry_{[] {
    core::RegistryOptions options;
    options.plugin_folders = {FRT_PLUGIN_DIR};
    if (const char* folder = std::getenv("FRT_TEST_BACKEND_DIR")) {
      options.plugin_folders.emplace_back(folder);
    }
    options.use_environment = false;
    options.own_folder = FRT_PLUGIN_DIR;
    options.probing = core::Probing::kNever;
    return options;
  }()};
  std::unique_ptr<core::Runtime> runtime_;
};

// A role driven by hand: one step at a time, greedy.
class LmDriver {
 public:
  explicit LmDriver(const ModelRig& rig)
      : rig_(rig),
        info(rig.lm()),
        role_(rig.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM)),
        stream(rig.context.create_stream("test")) {
    std::vector<frt_sampling_params> params(info.max_batch);
    for (frt_sampling_params& each : params) each.top_p = each.repetition_penalty = 1;
    write(info.sampling, params);
  }

  template <class T>
  void write(frt_buffer buffer, const std::vector<T>& values) const {
    Buffer::retain(rig_.context, buffer).upload(values, stream);
  }
  template <class T>
  std::vector<T> read(frt_buffer buffer, uint64_t count) const {
    return Buffer::retain(rig_.context, buffer).download<T>(count, stream);
  }

  void clear(uint32_t slot) const {
    check(core::state_table()->state_clear(info.state, slot, stream), "clear");
  }
  void reserve(uint32_t slot, uint64_t first, uint64_t end) const {
    check(core::state_table()->state_reserve(info.state, slot, first, end, stream), "reserve");
  }
  // Feeds at most prefill_chunk tokens; returns the sampled one. `starts`: of a new request.
  int32_t prefill(uint32_t slot, int32_t position, const std::vector<int32_t>& ids,
                  bool starts = false) const {
    frt_shape_key key = 0;
    check(role_->prefill_key(rig_.model, static_cast<uint32_t>(ids.size()), &key), "key");
    reserve(slot, static_cast<uint64_t>(position), static_cast<uint64_t>(position) + ids.size());
    write(info.tokens, ids);
    write(info.slot_ids, std::vector<int32_t>{static_cast<int32_t>(slot)});
    write(info.positions, std::vector<int32_t>{position});
    write(info.lengths, std::vector<int32_t>{static_cast<int32_t>(ids.size())});
    write(info.starts, std::vector<uint32_t>{starts ? 1u : 0u});
    check(rig_.context.table().graph_replay(info.prefill, key, stream), "prefill");
    return read<int32_t>(info.next_tokens, 1)[0];
  }
  struct Entry {
    int32_t slot, position, token, length = 1;
    bool starts = false;
  };
  // One decode or draft step; returns one token per entry.
  std::vector<int32_t> step(const std::vector<Entry>& entries, bool draft = false) const {
    frt_shape_key key = 0;
    uint32_t size = 0;
    const auto count = static_cast<uint32_t>(entries.size());
    check(draft ? role_->draft_key(rig_.model, count, 1, &key, &size)
                : role_->decode_key(rig_.model, count, &key, &size),
          "key");
    std::vector<int32_t> slots(size), positions(size), tokens(size), lengths(size);
    std::vector<uint32_t> starts(size);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      slots[i] = entries[i].slot;
      positions[i] = entries[i].position;
      tokens[i] = entries[i].token;
      lengths[i] = entries[i].length;
      starts[i] = entries[i].starts ? 1 : 0;
      const auto first = static_cast<uint64_t>(positions[i]);
      // A draft writes the draft head's row before its position.
      reserve(static_cast<uint32_t>(slots[i]), draft ? first - 1 : first,
              draft ? first : first + static_cast<uint64_t>(lengths[i]));
    }
    write(info.tokens, tokens);
    write(info.slot_ids, slots);
    write(info.positions, positions);
    write(info.lengths, lengths);
    write(info.starts, starts);
    check(rig_.context.table().graph_replay(draft ? info.draft : info.decode, key, stream), "step");
    std::vector<int32_t> next = read<int32_t>(info.next_tokens, size);
    next.resize(entries.size());
    return next;
  }
  // `drafts` tokens proposed behind the pending one of each entry; by entry.
  std::vector<std::vector<int32_t>> draft(const std::vector<Entry>& entries,
                                          uint32_t drafts) const {
    frt_shape_key key = 0;
    uint32_t size = 0;
    check(role_->draft_key(rig_.model, static_cast<uint32_t>(entries.size()), drafts, &key, &size),
          "key");
    std::vector<int32_t> tokens;
    for (const Entry& entry : entries) {
      tokens.push_back(entry.token);
      reserve(static_cast<uint32_t>(entry.slot), static_cast<uint64_t>(entry.position) - 1,
              static_cast<uint64_t>(entry.position) - 1 + drafts);
    }
    tokens.resize(size);
    write(info.tokens, tokens);
    write_entries(entries, size);
    check(rig_.context.table().graph_replay(info.draft, key, stream), "draft");
    const auto rows = read<int32_t>(info.candidates, uint64_t{size} * (drafts + 1));
    std::vector<std::vector<int32_t>> proposed;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(i * (drafts + 1));
      proposed.emplace_back(row + 1, row + 1 + drafts);
    }
    return proposed;
  }
  // The tokens of one verify step, by entry: entry i feeds its token and drafts[i], and gets those
  // that are the text. `stops`: by entry, or nothing.
  std::vector<std::vector<int32_t>> verify(
      std::vector<Entry> entries, const std::vector<std::vector<int32_t>>& drafts,
      const std::vector<std::vector<int32_t>>& stops = {}) const {
    std::size_t most = 1;
    for (const auto& each : drafts) most = std::max(most, each.size());
    const auto rows = static_cast<uint32_t>(most + 1);
    frt_shape_key key = 0;
    uint32_t size = 0;
    check(role_->verify_key(rig_.model, static_cast<uint32_t>(entries.size()), rows, &key, &size),
          "key");
    std::vector<int32_t> fed(std::size_t{size} * rows);
    std::vector<int32_t> ends(std::size_t{size} * info.stop_capacity, -1);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      fed[i * rows] = entries[i].token;
      std::copy(drafts[i].begin(), drafts[i].end(),
                fed.begin() + static_cast<std::ptrdiff_t>(i * rows + 1));
      if (i < stops.size()) {
        std::copy(stops[i].begin(), stops[i].end(),
                  ends.begin() + static_cast<std::ptrdiff_t>(i * info.stop_capacity));
      }
      if (entries[i].length > 0) entries[i].length = static_cast<int32_t>(drafts[i].size()) + 1;
      reserve(static_cast<uint32_t>(entries[i].slot), static_cast<uint64_t>(entries[i].position),
              static_cast<uint64_t>(entries[i].position + entries[i].length));
    }
    write(info.candidates, fed);
    write(info.stops, ends);
    write_entries(entries, size);
    check(rig_.context.table().graph_replay(info.verify, key, stream), "verify");
    const auto next = read<int32_t>(info.next_tokens, uint64_t{size} * rows);
    const auto accepted = read<int32_t>(info.accepted, size);
    std::vector<std::vector<int32_t>> text(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].length == 0) continue;
      const auto row = next.begin() + static_cast<std::ptrdiff_t>(i * rows);
      text[i].assign(row, row + accepted[i] + 1);
    }
    return text;
  }
  std::vector<float> logits(uint64_t entries = 1) const {
    return read<float>(info.logits, entries * info.vocabulary);
  }

 private:
  void write_entries(const std::vector<Entry>& entries, uint32_t size) const {
    std::vector<int32_t> slots(size), positions(size), lengths(size);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      slots[i] = entries[i].slot;
      positions[i] = entries[i].position;
      lengths[i] = entries[i].length;
    }
    write(info.slot_ids, slots);
    write(info.positions, positions);
    write(info.lengths, lengths);
  }

  const ModelRig& rig_;

 public:
  frt_lm_info info;

 private:
  const frt_role_lm_v1* role_;

 public:
  Stream stream;
};

// What a self-test said.
struct SelftestOutcome {
  std::size_t passed = 0;
  std::vector<std::string> failures, skipped;
};
inline SelftestOutcome run_selftest(const ModelRig& rig, const std::filesystem::path& goldens) {
  SelftestOutcome outcome;
  frt_error error{};
  const auto report = [](void* user, const frt_selftest_row* row) -> frt_status {
    auto& self = *static_cast<SelftestOutcome*>(user);
    if (row->verdict == FRT_VERDICT_PASS) ++self.passed;
    if (row->verdict == FRT_VERDICT_SKIP) {
      self.skipped.push_back(std::string(row->tensor) + " is skipped: " + row->gate);
    }
    if (row->verdict == FRT_VERDICT_FAIL) {
      self.failures.push_back(
          std::string(row->tensor) + " (" + row->gate + "): max abs " +
          std::to_string(row->max_abs) + ", relative " + std::to_string(row->relative) +
          ", cosine min " + std::to_string(row->cosine_min) + " mean " +
          std::to_string(row->cosine_mean) + ", argmax " + std::to_string(row->argmax_agreement));
    }
    return FRT_OK;
  };
  const auto* table = rig.extension<frt_selftest_v1>(FRT_EXT_SELFTEST);
  check(table->run(rig.model, goldens.c_str(), report, &outcome, &error), error);
  return outcome;
}

}  // namespace frt::test
