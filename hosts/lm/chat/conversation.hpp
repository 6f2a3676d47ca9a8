// SPDX-License-Identifier: Apache-2.0
// conversation.hpp - a dialogue with a model: messages, one answer at a time, streamed, and the
// states it passed through, so that one can go back, branch off, and go on another day.
//
// Every turn ends with a capsule of the slot's state. Going back restores it: what follows is to
// the bit what would have followed then. Where a capsule is gone, the messages are read again.
//
// What the model holds of it is in a slot of an engine, which has no other requests meanwhile. Its
// functions are called on one thread, not the engine's.
//
// A function that throws leaves the messages and branches as they were. Text and files come from
// outside: what is not UTF-8, or what the chat format cannot say, is refused.
#pragma once

#include <frt/io/file.hpp>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lm/engine/generate.hpp"
#include "lm/lm_model.hpp"

namespace frt::host {

class Conversation {
 public:
  // `options`: of the chat format (frt/chat.h). `engine` has one slot and a registry; it and
  // `model`, its model, outlive this object.
  Conversation(const LmModel& model, Engine& engine, nlohmann::ordered_json options);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  const nlohmann::ordered_json& options() const noexcept { return options_; }
  // Answers with or without reasoning.
  void set_thinking(bool on) { options_["enable_thinking"] = on; }
  // The system message, if there is one, and what was said.
  nlohmann::ordered_json messages() const { return here().whole(); }
  uint64_t tokens() const;  // that the slot holds
  // Replaces the system message; empty: none. FRT_ERR_INVALID_ARGUMENT.
  void set_system(const std::string& text);
  // Forgets everything but the system message. Other branches stay.
  void reset();

  // Writes messages as JSON. FRT_ERR_IO.
  void export_to(const std::string& path) { export_branch(current_, path, io::Rights::kUmask); }
  void export_branch(const std::string& name, const std::string& path, io::Rights rights);
  // Reads messages back in place of what is there. Answers that no file holds move to a branch of
  // their own; returns its name, or an empty one. FRT_ERR_IO, FRT_ERR_FORMAT.
  std::string import_from(const std::string& path);

  struct Turn {
    GenerationResult result;
    nlohmann::ordered_json message;  // what was added; null: nothing
  };
  // Asks `text` and streams the answer's text, reasoning included, to `show`; false: it could not
  // be shown, end here. `request` gives sampling and limits, `reader` the callbacks for the prompt;
  // prompt and token callback are replaced. An answer that was cut short is kept as it stands; if
  // nothing came, the question is taken back.
  Turn ask(const std::string& text, EngineRequest request, GenerationReader reader,
           const std::function<bool(const std::string&)>& show);

  // ---- states ----
  // Writes the conversation and its state at the end of the last turn to the disk. See
  // CapsuleRegistry::save().
  void save(const std::string& name, const frt_sampling_params& sampling, bool replace);
  // Whether the capsule that the present branch was restored from or saved to last is still the one
  // on the disk: another process may have written another conversation to it.
  bool owns_file();
  // Goes on at a branch, or at what save() wrote. A capsule takes the present branch's place, as
  // import_from() does; returns the same. FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT, FRT_ERR_UNSUPPORTED
  // for a capsule without a conversation.
  std::string restore(const std::string& name);
  // A new branch that starts here; the talk goes on in it. FRT_ERR_EXISTS.
  void fork(const std::string& name);
  // Takes `turns` back. FRT_ERR_OUT_OF_RANGE if there are not as many.
  void back(uint64_t turns);

  struct BranchView {
    std::string name;
    bool current = false;
    uint64_t turns = 0;
    uint64_t tokens = 0;   // of its state; 0: it will be read again
    bool unsaved = false;  // it has an answer that no file holds
    std::string file;      // the capsule that it was restored from or saved to last; empty: none
  };
  std::vector<BranchView> branches() const;  // by name

 private:
  // A question and what followed it.
  struct Round {
    std::size_t begin = 0;  // index of the question in Branch::messages
    std::string capsule;    // of the state behind it; empty: none was kept
  };
  struct Branch {
    nlohmann::ordered_json system;  // a message, or null
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    std::vector<Round> rounds;
    bool unsaved = false;
    std::string file;
    std::shared_ptr<const CapsuleContent> written;  // what the file meant then

    nlohmann::ordered_json whole() const;
  };

  Branch& here() { return branches_.at(current_); }
  const Branch& here() const { return branches_.at(current_); }
  Branch branch_of(const std::string& source, const nlohmann::ordered_json& messages,
                   const nlohmann::ordered_json& options) const;
  void require_renderable(nlohmann::ordered_json messages,
                          const nlohmann::ordered_json& options) const;
  std::string replace_here(Branch next);
  template <class Work>
  void with_state(const Work& work) const;
  void return_to_last_round();
  void pin_heads();

  const LmModel& model_;
  Engine& engine_;
  nlohmann::ordered_json options_;
  std::map<std::string, Branch> branches_;
  std::string current_;
  bool in_step_ = true;              // the slot holds the state behind the last round
  std::vector<std::string> pinned_;  // by this object: heads of the other branches
};

}  // namespace frt::host
