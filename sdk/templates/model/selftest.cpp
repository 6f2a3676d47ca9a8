// SPDX-License-Identifier: Apache-2.0
// A case is run as a host runs a request: `prefill` reads the prompt in chunks, `decode` reads the
// golden ids one by one, so that one wrong id does not spoil what comes behind it.
#include "selftest.hpp"

#include "byte_tokenizer.hpp"

#include <frt/error.hpp>
#include <frt/safetensors.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

namespace acme {
namespace {

// Sums of f32 in another order differ by less than 1e-4 here.
constexpr double kMostDifference = 1e-3;
constexpr const char* kLogitsGate = "max abs <= 1e-3";

struct Step {
  int32_t next;
  std::vector<float> logits;  // (vocabulary)
};

// One sequence in slot 0.
class Sequence {
 public:
  explicit Sequence(const SelftestModel& model)
      : model_(model), stream_(model.context.create_stream("selftest")) {
    frt_sampling_params greedy{};
    greedy.top_p = 1;
    greedy.repetition_penalty = 1;
    put(model_.buffers.sampling, greedy);
    put(model_.buffers.slot_ids, int32_t{0});
    put(model_.buffers.starts, uint32_t{0});
    model_.state.clear(0, stream_);
  }

  Step prefill(std::span<const int32_t> ids) {
    const uint32_t chunk = model_.role.prefill_chunk;
    for (; ids.size() > chunk; ids = ids.subspan(chunk)) {
      replay(model_.role.prefill, chunk, ids.first(chunk));
    }
    replay(model_.role.prefill, frt::lm_bucket(static_cast<uint32_t>(ids.size()), chunk), ids);
    return result();
  }
  Step decode(int32_t id) {
    replay(model_.role.decode, 1, {&id, 1});
    return result();
  }

 private:
  template <class T>
  void put(const frt::Buffer& buffer, const T& value) {
    buffer.upload(std::span<const T>(&value, 1), stream_);
  }

  void replay(frt_graph graph, frt_shape_key key, std::span<const int32_t> ids) {
    const auto length = static_cast<int32_t>(ids.size());
    model_.buffers.tokens.upload(ids, stream_);
    put(model_.buffers.positions, position_);
    put(model_.buffers.lengths, length);
    model_.state.reserve(0, static_cast<uint64_t>(position_),
                         static_cast<uint64_t>(position_ + length), stream_);
    model_.context.checked(model_.context.table().graph_replay(graph, key, stream_),
                           "graph_replay");
    position_ += length;
  }

  Step result() const {
    return {model_.buffers.next_tokens.download<int32_t>(1, stream_).at(0),
            model_.buffers.logits.download<float>(kVocabulary, stream_)};
  }

  const SelftestModel& model_;
  frt::Stream stream_;
  int32_t position_ = 0;
};

std::vector<int32_t> read_ids(const frt::Safetensors& file, const std::string& path,
                              const std::string& name) {
  const auto& shape = file.tensor(name).shape;
  const std::vector<uint64_t> list = {shape.empty() ? 0 : shape[0]};
  const std::vector<std::byte> bytes = file.read(name, "I32", list);
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  if (ids.empty()) throw frt::Error(FRT_ERR_FORMAT, path + ": '" + name + "' has no ids");
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (const int32_t id : ids) {
    if (id >= 0 && id < static_cast<int32_t>(kVocabulary)) continue;
    throw frt::Error(FRT_ERR_MISMATCH, path + ": '" + name + "' has the id " + std::to_string(id) +
                                           ", which is not in the vocabulary, 0 to 256");
  }
  return ids;
}

class Report {
 public:
  Report(frt_selftest_report report, void* user) : report_(report), user_(user) {}

  frt_status send(const std::string& tensor, const std::string& gate, uint32_t verdict,
                  uint64_t values, double max_abs = kNone) const {
    frt_selftest_row row{sizeof(row), verdict, tensor.c_str(), gate.c_str(), values,
                         max_abs,     kNone,   kNone,          kNone,        kNone};
    return report_(user_, &row);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  frt_selftest_report report_;
  void* user_;
};

frt_status run_case(const SelftestModel& model, const frt::Safetensors& file,
                    const std::string& path, const std::string& name, const Report& report) {
  const std::vector<int32_t> ids = read_ids(file, path, name + ".ids");
  const std::vector<int32_t> next = read_ids(file, path, name + ".next");
  const std::vector<float> logits = file.read_f32(name + ".logits", {next.size(), kVocabulary});
  if (ids.size() + next.size() > model.role.max_context) {
    const std::string positions = std::to_string(ids.size() + next.size());
    return report.send(name, "needs " + positions + " positions; raise the option context",
                       FRT_VERDICT_SKIP, 0);
  }
  Sequence sequence(model);
  bool same = true;
  double most = 0;
  for (std::size_t i = 0; i < next.size(); ++i) {
    const Step step = i == 0 ? sequence.prefill(ids) : sequence.decode(next[i - 1]);
    same = same && step.next == next[i];
    for (std::size_t token = 0; token < kVocabulary; ++token) {
      const double difference =
          std::abs(double{step.logits[token]} - double{logits[i * kVocabulary + token]});
      if (!(difference <= most)) most = difference;  // or NaN
    }
  }
  const auto verdict = [](bool pass) { return pass ? FRT_VERDICT_PASS : FRT_VERDICT_FAIL; };
  const frt_status status = report.send(name + ".logits", kLogitsGate,
                                        verdict(most <= kMostDifference), logits.size(), most);
  if (status != FRT_OK) return status;
  return report.send(name + ".next", "equal", verdict(same), next.size());
}

std::vector<std::string> files_of(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

frt_status run_selftest(const SelftestModel& model, const std::string& path,
                        frt_selftest_report report, void* user) {
  bool any = false;
  for (const std::string& one : files_of(path)) {
    const frt::Safetensors file(one);
    for (const auto& [tensor, description] : file.tensors()) {
      if (!tensor.ends_with(".ids")) continue;
      any = true;
      const std::string name = tensor.substr(0, tensor.size() - std::strlen(".ids"));
      const frt_status status = run_case(model, file, one, name, {report, user});
      if (status != FRT_OK) return status;
    }
  }
  if (!any) throw frt::Error(FRT_ERR_FORMAT, "no goldens there: no tensor NAME.ids");
  return FRT_OK;
}

}  // namespace acme
