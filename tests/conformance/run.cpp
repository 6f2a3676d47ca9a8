// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <cstdio>
#include <frt/io/utf8.hpp>
#include <utility>

#include "backend.hpp"
#include "check.hpp"
#include "variants.hpp"

namespace frt::conformance {
namespace {

// "FAIL  name   why", where `why` may be the plugin's words: a line feed in it begins no line.
std::string line_of(const char* verdict, const std::string& name, const std::string& why) {
  return std::string(verdict) + "  " + name +
         std::string(std::max<std::size_t>(60, name.size()) - name.size() + 1, ' ') +
         io::printable(why);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A plugin can write what a case writes: what comes beside the case's own verdict is found out.
constexpr const char* kContradicted =
    "a verdict came that no case gave; does the plugin write into files that it has not opened?";

// What became of a case, as the child tells it.
Message outcome(std::size_t index, const char* result, const std::string& message) {
  return {{"end", index}, {"result", result}, {"message", message}};
}

Message run_plugin_case(std::size_t index, const PluginCase& one, const Subject& subject) {
  const auto begin = Clock::now();
  try {
    one.body(subject);
    char measured[40];
    std::snprintf(measured, sizeof(measured), "%6.2f s", seconds_since(begin));
    Message end = outcome(index, "ok", "");
    end["measured"] = measured;
    return end;
  } catch (const Warn& warn) {
    return outcome(index, "warn", warn.why);
  } catch (const Skip& skip) {
    return outcome(index, "skip", skip.why);
  } catch (const std::exception& error) {
    return outcome(index, "FAIL", error.what());
  } catch (...) {
    return outcome(index, "FAIL", "the plugin threw an exception of unknown type");
  }
}

Message run_entry(std::size_t index, const Suite::Entry& entry, Backend& tested, Backend& reference,
                  const Choice& choice) {
  const auto begin = Clock::now();
  Case one(tested, reference, choice.seed, choice.once, choice.activations);
  try {
    entry.body(one);
    char measured[80];
    std::snprintf(measured, sizeof(measured), "%.2e %.2e %6.2f s", one.worst(), one.worst_element(),
                  seconds_since(begin));
    Message end = outcome(index, "ok", "");
    end["measured"] = measured;
    end["rounded"] = one.has_rounded();
    return end;
  } catch (const Warn& warn) {
    return outcome(index, "warn", warn.why);
  } catch (const Skip& skip) {
    return outcome(index, skip.declined && choice.strict ? "FAIL" : "skip", skip.why);
  } catch (const std::exception& error) {
    return outcome(index, "FAIL", error.what());
  } catch (...) {
    return outcome(index, "FAIL", "the plugin threw an exception of unknown type");
  }
}

// Whether a message has the members that a child gives it, of `count` cases. A plugin that writes
// into files which it has not opened may have put anything there.
bool is_sound(const Message& message, std::size_t count) {
  const auto all = [&](std::initializer_list<const char*> keys, const auto& fits) {
    return std::all_of(keys.begin(), keys.end(), [&](const char* key) {
      return !message.contains(key) || fits(message[key]);
    });
  };
  const auto text = [](const Message& value) { return value.is_string(); };
  const auto texts = [&](const Message& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), text);
  };
  const auto index = [&](const Message& value) {
    return value.is_number_unsigned() && value.get<std::size_t>() < count;
  };
  const bool whole =
      (!message.contains("end") || (message.contains("result") && message.contains("message"))) &&
      (!message.contains("device") ||
       (message.contains("architecture") && message.contains("offered")));
  return whole && all({"begin", "end"}, index) && all({"offered", "variants"}, texts) &&
         all({"stop", "device", "architecture", "result", "message", "measured"}, text) &&
         all({"rounded"}, [](const Message& value) { return value.is_boolean(); });
}

// The cases of operators from `first` on, in the process that this runs in.
void run_entries(const Items& items, std::size_t first, const Subject& subject,
                 const Choice& choice, Clock::time_point start, const Send& send) {
  Backend tested(subject.plugin, subject.device, subject.options);
  std::optional<Backend> trusted;
  if (std::any_of(items.begin(), items.end(), needs_reference)) {
    trusted.emplace(subject.reference, 0,
                    std::vector<Option>{{"numerics", "reference"},
                                        {"threads", std::to_string(choice.threads)}});
  }
  VariantWatch watch(tested);
  send({{"device", tested.info().name},
        {"architecture", tested.info().architecture},
        {"offered", watch.idle()}});
  for (std::size_t i = first; i < items.size(); ++i) {
    if (choice.seconds > 0 && seconds_since(start) > choice.seconds) {
      send({{"left", true}});
      return;
    }
    send({{"begin", i}});
    Message end = run_entry(i, *items[i].entry, tested, trusted ? *trusted : tested, choice);
    end["variants"] = watch.launched();
    send(end);
  }
}

}  // namespace

void Report::add(const std::string& name, const std::string& result, const std::string& line,
                 const std::string& message, const std::vector<std::string>& variants) {
  if (json) {
    nlohmann::ordered_json one = {{"name", name}, {"result", result}, {"variants", variants}};
    if (!message.empty()) one["message"] = message;
    cases.push_back(std::move(one));
  } else if (!line.empty()) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
}

bool needs_reference(const Item& item) {
  return item.entry && !item.name.starts_with(FRT_EXT_BACKEND " ");
}

Run::Run(const Items& items, const Subject& subject, const Choice& choice, std::string id,
         Report& report)
    : items_(items),
      subject_(subject),
      choice_(choice),
      id_(std::move(id)),
      report_(report),
      settled_(items.size()) {}

void Run::all() {
  if (!run_plugin_cases()) {
    return leave_out("skip", "what failed above has to be right first");
  }
  if (first_open() < items_.size()) run_operator_cases();
  if (out_of_time_) leave_out("left out", "no time is left (--seconds)");
}

// False: one failed without which no other case can be judged.
bool Run::run_plugin_cases() {
  for (std::size_t i = 0; i < items_.size() && items_[i].plugin; ++i) {
    ended_.reset();
    Subject subject = subject_;
    const ChildEnd end = work([&](const Send& send) {
      subject.alive = [&] { send({{"alive", true}}); };
      send({{"begin", i}});
      send(run_plugin_case(i, *items_[i].plugin, subject));
    });
    std::string result = "FAIL", text =
                                     "its verdict did not come; does the plugin close files that "
                                     "it has not opened?";
    if (ended_) {
      result = (*ended_)["result"];
      text = (*ended_)["message"];
    }
    if (contradicted_) {
      result = "FAIL";
      text = kContradicted;
    }
    if (end.how != ChildEnd::How::kExited) {
      const std::string when = ended_ ? "when its process ends: " : "";
      if (ended_ && result == "FAIL") {
        text += "; and " + when + end.words;
      } else {
        result = end.how == ChildEnd::How::kHung ? "HANG" : "CRASH";
        text = when + end.words;
      }
    }
    const int failed = totals_.failed;
    settle(i, result, text, ended_.value_or(Message::object()));
    if (totals_.failed > failed && items_[i].plugin->stops) return false;
  }
  return true;
}

void Run::run_operator_cases() {
  for (int ends = 0; !out_of_time_;) {
    const std::size_t first = first_open();
    if (first == items_.size()) return;
    last_.clear();
    const ChildEnd end = work(
        [&](const Send& send) { run_entries(items_, first, subject_, choice_, start_, send); });
    if (contradicted_) settle_process("FAIL", kContradicted);
    if (!stopped_.empty()) {
      settle_process("FAIL", stopped_);
      return leave_out("skip", "no case can begin");
    }
    if (end.how != ChildEnd::How::kExited) {
      const char* verdict = end.how == ChildEnd::How::kHung ? "HANG" : "CRASH";
      if (running_) {
        settle(*running_, verdict, end.words);
      } else {
        const std::string when =
            last_.empty() ? "before its first case" : "after the case `" + last_ + "`";
        settle_process(verdict, when + ": " + end.words);
      }
      if (first_open() == first) return leave_out("skip", "no case can begin");
      if (++ends == kMostEnds) return leave_out("skip", "too many processes crashed or hung");
    } else if (running_) {
      settle(*running_, "FAIL", "its verdict did not come");
    } else if (first_open() == first && !out_of_time_) {
      settle_process("FAIL", "it ended before its cases did");
      return leave_out("skip", "no case can begin");
    }
  }
}

void Run::print_summary() const {
  constexpr std::size_t kMostReasons = 6;
  std::printf("%d passed, %d failed, %d skipped", totals_.passed, totals_.failed, totals_.skipped);
  if (totals_.left > 0) std::printf(", %d left out for lack of time", totals_.left);
  const auto open = std::count(settled_.begin(), settled_.end(), false);
  if (open > 0) std::printf(", %td not run", open);
  std::printf("\n");
  std::vector<std::pair<std::string, int>> reasons(totals_.reasons.begin(), totals_.reasons.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string line;
  int others = 0;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (i >= kMostReasons) {
      others += reasons[i].second;
      continue;
    }
    line += (i == 0 ? "" : "; ") + std::to_string(reasons[i].second) + ": " + reasons[i].first;
  }
  if (others > 0) line += "; " + std::to_string(others) + " for other reasons (--verbose)";
  if (!line.empty()) std::printf("skipped: %s\n", io::printable(line).c_str());
  std::fflush(stdout);
}

std::vector<std::string> Run::idle() const {
  std::vector<std::string> names;
  for (const std::string& name : offered_) {
    if (!launched_.contains(name)) names.push_back(name);
  }
  return names;
}

// The first case without a verdict.
std::size_t Run::first_open() const {
  return static_cast<std::size_t>(std::find(settled_.begin(), settled_.end(), false) -
                                  settled_.begin());
}

// The verdict of all that have none.
void Run::leave_out(const char* result, const std::string& why) {
  for (std::size_t i = 0; i < items_.size(); ++i) settle(i, result, why);
}

ChildEnd Run::work(const std::function<void(const Send&)>& body) {
  running_.reset();
  contradicted_ = false;
  const Send receive = [&](const Message& message) { hear(message); };
  if (!choice_.in_process) return run_in_child(body, receive, choice_.patience);
  try {
    body(receive);
  } catch (const std::exception& error) {
    hear({{"stop", error.what()}});
  }
  return {};
}

void Run::hear(const Message& message) {
  if (!is_sound(message, items_.size())) return;
  if (message.contains("stop")) {
    stopped_ = message["stop"];
  } else if (message.contains("left")) {
    out_of_time_ = true;
  } else if (message.contains("device")) {
    if (device_.empty() && !report_.json) {
      const std::string device = message["device"], architecture = message["architecture"];
      std::printf("%s\n", io::printable(id_ + ": " + device + ", " + architecture).c_str());
    }
    device_ = message["device"];
    offered_ = message["offered"].get<std::vector<std::string>>();
  } else if (message.contains("begin")) {
    if (running_) settle(*running_, "FAIL", "its verdict did not come");
    running_ = message["begin"].get<std::size_t>();
  } else if (message.contains("end")) {
    const auto index = message["end"].get<std::size_t>();
    if (running_ != index) {
      contradicted_ = true;
      return;
    }
    running_.reset();
    last_ = items_.at(index).name;
    if (items_.at(index).plugin) {
      ended_ = message;
    } else {
      settle(index, message["result"], message["message"], message);
    }
  }
}

void Run::settle(std::size_t index, const std::string& result, const std::string& text,
                 const Message& told) {
  if (settled_.at(index)) return;
  settled_[index] = true;
  const std::string& name = items_[index].name;
  const auto variants = told.value("variants", std::vector<std::string>());
  launched_.insert(variants.begin(), variants.end());
  const bool good = result == "ok", skipped = result == "skip", left = result == "left out";
  if (good || result == "warn") {
    ++totals_.passed;
  } else if (skipped) {
    ++totals_.skipped;
    ++totals_.reasons[text];
  } else if (left) {
    ++totals_.left;
  } else {
    ++totals_.failed;
  }
  totals_.rounded += told.value("rounded", false) ? 1 : 0;
  const bool shown = report_.verbose || !(good || skipped || left);
  const std::string verdict = good ? "ok  " : result;
  report_.add(
      name, result,
      shown ? line_of(verdict.c_str(), name, good ? told.value("measured", std::string()) : text)
            : "",
      text, variants);
}

// Of the process that the cases of operators share.
void Run::settle_process(const char* result, const std::string& text) {
  ++totals_.failed;
  const std::string name = "plugin process";
  report_.add(name, result, line_of(result, name, text), text, {});
}

}  // namespace frt::conformance
