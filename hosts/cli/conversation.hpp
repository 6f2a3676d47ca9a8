// SPDX-License-Identifier: Apache-2.0
// conversation.hpp - a dialogue with a model: messages, one answer at a time, streamed, and the
// states it passed through, so that one can go back, branch off, and go on another day.
//
// Every turn ends with a capsule of the slot's state. Going back restores it: what follows is to
// the bit what would have followed then. Where a capsule is gone, the messages are read again.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lm/generator.hpp"
#include "lm/lm_model.hpp"

namespace frt::host {

class Conversation {
 public:
  // `options`: of the chat format (frt/chat.h). `registry` outlives this object.
  Conversation(const LmModel& model, CapsuleRegistry& registry, const SessionOptions& session,
               nlohmann::ordered_json options);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  nlohmann::ordered_json& options() noexcept { return options_; }
  const nlohmann::ordered_json& messages() const noexcept { return here().messages; }
  const Session& session() const noexcept { return generator_.session(); }
  // Replaces the system message; empty: none.
  void set_system(const std::string& text);
  // Forgets everything but the system message. Other branches stay.
  void reset();

  // Writes messages as JSON; reads them back, replacing what is there. FRT_ERR_IO, FRT_ERR_FORMAT.
  void export_to(const std::string& path) const;
  void import_from(const std::string& path);

  struct Turn {
    GenerationResult result;
    nlohmann::ordered_json message;  // what was added
  };
  // Asks `text` and streams the answer's text, reasoning included, to `show`. `request` gives
  // sampling and limits; its prompt and callback are replaced. `cancelled` is asked per token. An
  // answer that was cut short is kept as it stands; if nothing came, the question is taken back.
  Turn ask(const std::string& text, GenerationRequest request,
           const std::function<void(const std::string&)>& show,
           const std::function<bool()>& cancelled);

  // ---- states ----
  // Writes the present state with the conversation to the disk. See CapsuleRegistry::save().
  void save(const std::string& name, const frt_sampling_params& sampling, bool replace);
  // Goes on at a branch, or at what save() wrote. FRT_ERR_NOT_FOUND.
  void restore(const std::string& name);
  // A new branch that starts here; the talk goes on in it. FRT_ERR_EXISTS.
  void fork(const std::string& name);
  // Takes `turns` back. FRT_ERR_OUT_OF_RANGE if there are not as many.
  void back(uint64_t turns);

  struct BranchView {
    std::string name;
    bool current = false;
    uint64_t turns = 0;
    uint64_t tokens = 0;  // of its state; 0: it will be read again
  };
  std::vector<BranchView> branches() const;  // by name

 private:
  // The end of a turn: how many messages there were, and the capsule of the state then.
  struct Point {
    std::size_t messages = 0;
    std::string capsule;  // empty: none was kept
  };
  struct Branch {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    std::vector<Point> points;
  };

  Branch& here() { return branches_.at(current_); }
  const Branch& here() const { return branches_.at(current_); }
  void remember(std::string capsule);
  void return_to_last_point();
  void pin_heads();
  uint64_t parting_point(const std::vector<int32_t>& prompt) const;

  const LmModel& model_;
  CapsuleRegistry& registry_;
  Generator generator_;
  nlohmann::ordered_json options_;
  std::map<std::string, Branch> branches_;
  std::string current_;
  std::vector<std::string> pinned_;  // heads of the other branches
};

}  // namespace frt::host
