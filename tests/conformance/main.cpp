// SPDX-License-Identifier: Apache-2.0
// frt-plugin-check: does a plugin do what the headers say? Of every plugin: card, descriptor, life,
// hosts of other versions, tables (plugin_cases.hpp). Of a model: that it is made and destroyed,
// its roles, captured runs against eager ones, capsules, options (model_cases.cpp). Of a backend:
// its streams, events and executables by the rules of frt/backend.h, and every operator it offers,
// with random inputs and odd shapes, against the CPU backend in its reference numerics (f32, one
// fixed order of reduction); and products and whatever moves, counts, converts, routes or samples
// against values computed here in double, which judge the CPU backend, too (expected.hpp).
//
// No code of a plugin runs in this process (child.hpp). Each case of every plugin has a process of
// its own; the cases of operators share one, because devices open slowly, and where one crashes or
// hangs, a new process goes on with the next case.
//
// Under a tool that makes each case a hundred times slower (compute-sanitizer), --part spreads the
// cases over processes side by side, and --seconds ends a process in time: the cases are then taken
// in random order, so what is left out is left out evenly, and it is counted. --one-of-each and
// --once leave out what such a tool would see again; --list shows the order, --verbose what a case
// took, and --cases runs those of a list, e.g. what was left out. What shows itself in one run of
// many wants --repeat.
//
// A backend that lists its kernel variants (frt/draft/kernel_variants.h) is asked after each case
// which of them ran; --json has them. A run of all cases fails where a variant that the device
// offers never ran: nothing would have tested it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "check.hpp"
#include "child.hpp"
#include "plugin_cases.hpp"
#include "variants.hpp"

namespace {

using frt::conformance::Backend;
using frt::conformance::Case;
using frt::conformance::ChildEnd;
using frt::conformance::Message;
using frt::conformance::Option;
using frt::conformance::PluginCase;
using frt::conformance::Send;
using frt::conformance::Skip;
using frt::conformance::Subject;
using frt::conformance::Suite;
using frt::conformance::VariantWatch;
using frt::conformance::Warn;
using Json = nlohmann::ordered_json;

// "key=value" as an option of the device.
Option option_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--set '" + text + "': expected key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

struct Choice {
  std::string filter;           // text in the name
  std::set<std::string> names;  // only these, if any
  int part = 1, parts = 1;   // of the cases that the filter leaves, each parts-th from this one on
  double seconds = 0;        // no case begins later; 0: all of them
  bool one_of_each = false;  // of cases whose names differ in numbers only the middle one
  bool once = false;         // eagerly alone
  bool strict = false;       // an operator that is offered supports all arguments
  bool fp8_activations = false;  // the backend rounds x, and must
  bool all_variants = false;     // every offered kernel variant must run, whatever the cases
  int repeat = 1;                // so often each
  uint64_t seed = 1;
  double patience = 300;    // seconds that a case may take; 0: any time
  bool in_process = false;  // no children
  uint32_t threads = 0;     // of the reference
};

// Whether the choice leaves no case out.
bool is_full(const Choice& choice) {
  return choice.filter.empty() && choice.names.empty() && choice.parts == 1 &&
         choice.seconds == 0 && !choice.one_of_each;
}

// "3/16".
void read_part(const std::string& text, Choice& choice) {
  int end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &choice.part, &choice.parts, &end) != 2 ||
      static_cast<std::size_t>(end) != text.size() || choice.part < 1 ||
      choice.part > choice.parts) {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT,
                     "--part '" + text + "': expected I/N with I from 1 to N, e.g. 3/16");
  }
}

// The names in a file, one a line.
std::set<std::string> read_names(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw frt::Error(FRT_ERR_NOT_FOUND, "--cases: cannot read " + path);
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) names.insert(line);
  }
  if (names.empty()) throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "--cases: no names in " + path);
  return names;
}

// One case, of one of two kinds.
struct Item {
  std::string name;
  const PluginCase* plugin = nullptr;
  const Suite::Entry* entry = nullptr;
};
using Items = std::vector<Item>;

Items one_of_each(const Items& all) {
  std::map<std::string, Items> kinds;
  for (const Item& item : all) {
    std::string kind;
    for (const char c : item.name) {
      if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
    }
    kinds[kind].push_back(item);
  }
  Items chosen;
  for (const auto& [kind, members] : kinds) chosen.push_back(members[members.size() / 2]);
  return chosen;
}

// Those of the plugin come first, in their order.
Items chosen_cases(const std::vector<PluginCase>& of_plugin, const Suite& suite,
                   const Choice& choice) {
  Items all, chosen;
  for (const PluginCase& one : of_plugin) all.push_back({one.name, &one, nullptr});
  for (const Suite::Entry& one : suite.cases()) all.push_back({one.name, nullptr, &one});
  std::erase_if(all, [&](const Item& item) {
    return item.name.find(choice.filter) == std::string::npos ||
           (!choice.names.empty() && !choice.names.contains(item.name));
  });
  if (choice.one_of_each) all = one_of_each(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) % choice.parts == choice.part - 1) {
      chosen.insert(chosen.end(), choice.repeat, all[i]);
    }
  }
  if (choice.seconds > 0) {
    std::mt19937_64 random(choice.seed);
    for (std::size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[random() % i]);
  }
  // The steps of a plugin's life, in their order whatever order the others have.
  const auto behind = std::stable_partition(
      chosen.begin(), chosen.end(), [](const Item& item) { return item.plugin != nullptr; });
  std::stable_sort(chosen.begin(), behind,
                   [](const Item& a, const Item& b) { return a.plugin < b.plugin; });
  return chosen;
}

struct Totals {
  int passed = 0, failed = 0, skipped = 0, left = 0;
  int rounded = 0;  // with a product of rounded activations
};

// How a run is told: a line for each case that is worth one, or everything in one JSON object.
struct Report {
  bool verbose = false, json = false;
  Json cases = Json::array();

  void add(const std::string& name, const char* result, const std::string& line,
           const std::string& message, const std::vector<std::string>& variants) {
    if (json) {
      Json one = {{"name", name}, {"result", result}, {"variants", variants}};
      if (!message.empty()) one["message"] = message;
      cases.push_back(std::move(one));
    } else if (!line.empty()) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  }
};

// "FAIL  name   why".
std::string line_of(const char* verdict, const std::string& name, const std::string& why) {
  return std::string(verdict) + "  " + name +
         std::string(std::max<std::size_t>(60, name.size()) - name.size() + 1, ' ') + why;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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
  }
}

Message run_entry(std::size_t index, const Suite::Entry& entry, Backend& tested, Backend& reference,
                  const Choice& choice) {
  const auto begin = Clock::now();
  Case one(tested, reference, choice.seed, choice.once, choice.fp8_activations);
  try {
    entry.body(one);
    char measured[80];
    std::snprintf(measured, sizeof(measured), "%.2e %.2e %6.2f s", one.worst(), one.worst_element(),
                  seconds_since(begin));
    Message end = outcome(index, "ok", "");
    end["measured"] = measured;
    end["rounded"] = one.has_rounded();
    return end;
  } catch (const Skip& skip) {
    return outcome(index, skip.declined && choice.strict ? "FAIL" : "skip", skip.why);
  } catch (const std::exception& error) {
    return outcome(index, "FAIL", error.what());
  }
}

// The rules of frt/backend.h are judged without a reference.
bool needs_reference(const Item& item) {
  return item.entry && !item.name.starts_with(FRT_EXT_BACKEND " ");
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
    if (!items[i].entry) continue;
    if (choice.seconds > 0 && seconds_since(start) > choice.seconds) {
      send({{"left", items.size() - i}});
      return;
    }
    send({{"begin", i}});
    Message end = run_entry(i, *items[i].entry, tested, trusted ? *trusted : tested, choice);
    end["variants"] = watch.launched();
    send(end);
  }
}

// A whole run: children, what they say, and what became of them.
class Run {
 public:
  Run(const Items& items, const Subject& subject, const Choice& choice, std::string id,
      Report& report)
      : items_(items), subject_(subject), choice_(choice), id_(std::move(id)), report_(report) {}

  void all() {
    std::size_t first = 0;
    for (; first < items_.size() && items_[first].plugin; ++first) {
      const Item& item = items_[first];
      work([&, first](const Send& send) {
        send({{"begin", first}});
        send(run_plugin_case(first, *item.plugin, subject_));
      });
      // What is behind the first failure would say the same again.
      if (totals_.failed > 0) return leave_out(first + 1);
    }
    for (int crashes = 0; first < items_.size(); first = next_, ++crashes) {
      if (crashes == kMostCrashes) return leave_out(first);
      next_ = items_.size();
      work([&](const Send& send) { run_entries(items_, first, subject_, choice_, start_, send); });
    }
  }

  const Totals& totals() const { return totals_; }
  const std::string& device() const { return device_; }
  // Why no case could begin; empty: they could.
  const std::string& stopped() const { return stopped_; }
  // What the device offers and no case ran.
  std::vector<std::string> idle() const {
    std::vector<std::string> names;
    for (const std::string& name : offered_) {
      if (!launched_.contains(name)) names.push_back(name);
    }
    return names;
  }

 private:
  static constexpr int kMostCrashes = 20;

  void leave_out(std::size_t first) {
    if (first >= items_.size()) return;
    const std::size_t count = items_.size() - first;
    totals_.skipped += static_cast<int>(count);
    if (!report_.json) {
      std::printf("skip  %zu cases: what failed above has to be right first\n", count);
    }
  }

  void work(const std::function<void(const Send&)>& body) {
    running_.reset();
    const Send receive = [&](const Message& message) { hear(message); };
    if (choice_.in_process) {
      try {
        body(receive);
      } catch (const std::exception& error) {
        hear({{"stop", error.what()}});
      }
      return;
    }
    const ChildEnd end = frt::conformance::run_in_child(body, receive, choice_.patience);
    if (end.how == ChildEnd::How::kExited) return;
    const char* verdict = end.how == ChildEnd::How::kHung ? "HANG" : "CRASH";
    ++totals_.failed;
    const std::string name =
        running_ ? items_[*running_].name : std::string("plugin device, before or after its cases");
    report_.add(name, verdict, line_of(verdict, name, end.words), end.words, {});
    if (running_) next_ = *running_ + 1;
  }

  void hear(const Message& message) {
    if (message.contains("stop")) {
      stopped_ = message["stop"];
      ++totals_.failed;
    } else if (message.contains("left")) {
      totals_.left += message["left"].get<int>();
    } else if (message.contains("device")) {
      if (device_.empty() && !report_.json) {
        std::printf("%s: %s, %s\n", id_.c_str(), message["device"].get<std::string>().c_str(),
                    message["architecture"].get<std::string>().c_str());
      }
      device_ = message["device"];
      offered_ = message["offered"].get<std::vector<std::string>>();
    } else if (message.contains("begin")) {
      running_ = message["begin"].get<std::size_t>();
    } else {
      tell(message);
    }
  }

  void tell(const Message& end) {
    running_.reset();
    const std::string& name = items_.at(end["end"].get<std::size_t>()).name;
    const std::string result = end["result"], text = end["message"];
    const auto variants = end.value("variants", std::vector<std::string>());
    launched_.insert(variants.begin(), variants.end());
    const bool good = result == "ok", failed = result == "FAIL", skipped = result == "skip";
    totals_.passed += good || result == "warn" ? 1 : 0;
    totals_.failed += failed ? 1 : 0;
    totals_.skipped += skipped ? 1 : 0;
    totals_.rounded += end.value("rounded", false) ? 1 : 0;
    const bool shown = report_.verbose || !(good || skipped);
    const std::string verdict = good ? "ok  " : result;
    report_.add(
        name, result.c_str(),
        shown ? line_of(verdict.c_str(), name, good ? end.value("measured", std::string()) : text)
              : "",
        text, variants);
  }

  const Items& items_;
  const Subject& subject_;
  const Choice& choice_;
  const std::string id_;
  Report& report_;
  const Clock::time_point start_ = Clock::now();
  Totals totals_;
  std::optional<std::size_t> running_;  // the case that has begun and not ended
  std::size_t next_ = 0;                // where the next child begins
  std::string device_, stopped_;
  std::vector<std::string> offered_;
  std::set<std::string> launched_;
};

// The CPU backend of this installation; never that of the folder where a vendor's plugin lies,
// unless there is no other.
std::string find_reference(const std::string& plugin) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code).parent_path();
  const fs::path places[] = {program / ".." / "lib" / "frt" / "plugins", program,
                             fs::path(plugin).parent_path()};
  std::string searched;
  for (const fs::path& folder : places) {
    const fs::path file = (folder / "frt_cpu.so").lexically_normal();
    if (fs::exists(file, code)) return file.string();
    searched += (searched.empty() ? "" : ", ") + file.string();
  }
  throw frt::Error(FRT_ERR_NOT_FOUND,
                   "the reference, the CPU backend, is not installed (searched: " + searched +
                       "); give its file with --reference");
}

// A folder for files of the run.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "frt-plugin-check-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) {
      throw frt::Error(FRT_ERR_IO, "cannot make a folder " + path_ + "; set TMPDIR");
    }
  }
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What the card says; kind 0 where it cannot be read, which the first case reports.
frt::core::Card card_of(const std::string& plugin) {
  try {
    return frt::core::read_image(plugin).card;
  } catch (const frt::Error&) {
    return {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks a plugin, a backend or a model, against what the headers say.");
  std::string part, cases;
  Subject subject;
  Choice choice;
  std::vector<std::string> settings;
  bool list = false;
  Report report;
  app.add_option("plugin", subject.plugin, "The plugin file, e.g. lib/frt/plugins/frt_cpu.so")
      ->required();
  app.add_option("--reference", subject.reference,
                 "The CPU plugin; default: that of this installation, else frt_cpu.so beside the "
                 "plugin. Needed for operators and models");
  app.add_option("--device", subject.device, "Ordinal of the device, of a backend");
  app.add_option("--set", settings,
                 "An option of the backend's device or of the model, key=value; repeatable");
  app.add_option("--checkpoint", subject.checkpoint,
                 "What a model is made of; without it no model is made");
  app.add_option("--backend", subject.backend,
                 "The backend plugin that a model runs on; default: the reference");
  app.add_option("--filter", choice.filter, "Only cases whose name contains this text");
  app.add_option("--cases", cases, "Only the cases whose names stand in this file, one a line");
  app.add_option("--part", part, "I/N: of these each N-th case, from the I-th on");
  app.add_flag("--one-of-each", choice.one_of_each,
               "Of cases whose names differ in numbers only, the middle one");
  app.add_flag("--once", choice.once, "Each case once, eagerly: nothing is recorded");
  app.add_flag("--strict", choice.strict,
               "FRT_ERR_UNSUPPORTED fails a case; otherwise it is skipped, as where the plugin has "
               "no such operator");
  app.add_flag(
      "--fp8-activations", choice.fp8_activations,
      "The plugin rounds bf16 activations to FP8 in products of many rows with FP8 weights "
      "(with --set fp8_activations=on), which must show; for cases of `linear/1 gemm`");
  app.add_option("--repeat", choice.repeat, "Each case so often, one after the other")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", choice.seconds,
                 "Takes the cases in random order and begins none after so many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", choice.threads,
                 "Of the reference; 0: all cores. 1 where processes run side by side");
  app.add_option("--seed", choice.seed, "Seed of the random inputs")->capture_default_str();
  app.add_flag("--verbose", report.verbose,
               "A line per case: largest relative error of a tensor, of an element, its time");
  app.add_flag("--json", report.json,
               "One JSON object: each case with the kernel variants that computed it");
  app.add_flag(
      "--all-variants", choice.all_variants,
      "Fails where a kernel variant that the device offers never ran, as a run of all cases "
      "does by itself");
  app.add_option("--timeout", choice.patience,
                 "Seconds that one case may take before it counts as hanging; 0: any time")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--in-process", choice.in_process,
               "Run everything in this process: for debuggers; a crash ends the check");
  app.add_flag("--list", list, "Only list the cases");
  CLI11_PARSE(app, argc, argv);

  Suite suite;
  frt::conformance::add_runtime_cases(suite);
  frt::conformance::add_draft_cases(suite);
  frt::conformance::add_elementwise_cases(suite);
  frt::conformance::add_norm_cases(suite);
  frt::conformance::add_embed_cases(suite);
  frt::conformance::add_linear_cases(suite);
  frt::conformance::add_linear_gemm_cases(suite);
  frt::conformance::add_gated_delta_cases(suite);
  frt::conformance::add_attention_cases(suite);
  frt::conformance::add_moe_cases(suite);
  frt::conformance::add_sample_cases(suite);
  frt::conformance::add_weight_cases(suite);
  frt::conformance::add_dense_cases(suite);
  frt::conformance::add_dense_attention_cases(suite);
  frt::conformance::add_dense_fp8_cases(suite);
  frt::conformance::add_flow_cases(suite);
  frt::conformance::add_flow_layers_cases(suite);
  try {
    if (!part.empty()) read_part(part, choice);
    if (!cases.empty()) choice.names = read_names(cases);
    const frt::core::Card card = card_of(subject.plugin);
    const std::vector<PluginCase> of_plugin = frt::conformance::plugin_cases(card.kind);
    const bool is_backend = card.kind == FRT_PLUGIN_BACKEND;
    const Suite none;
    const Items items = chosen_cases(of_plugin, is_backend ? suite : none, choice);
    if (list) {
      for (const Item& item : items) std::printf("%s\n", item.name.c_str());
      return 0;
    }
    for (const std::string& text : settings) subject.options.push_back(option_of(text));
    subject.seed = choice.seed;
    const bool runs_model = card.kind == FRT_PLUGIN_MODEL && !subject.checkpoint.empty();
    if (subject.reference.empty() && (std::any_of(items.begin(), items.end(), needs_reference) ||
                                      (runs_model && subject.backend.empty()))) {
      subject.reference = find_reference(subject.plugin);
    }
    const Folder folder;
    subject.folder = folder.path();
    frt::conformance::adopt_orphans();
    Run run(items, subject, choice, card.id, report);
    run.all();
    const Totals& totals = run.totals();
    if (!run.stopped().empty()) std::fprintf(stderr, "error: %s\n", run.stopped().c_str());
    const std::vector<std::string> idle = run.idle();
    if (report.json) {
      const Json all = {{"plugin", card.id},       {"device", run.device()},
                        {"cases", report.cases},   {"passed", totals.passed},
                        {"failed", totals.failed}, {"skipped", totals.skipped},
                        {"left_out", totals.left}, {"idle_variants", idle}};
      std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
      std::printf("%d passed, %d failed, %d skipped", totals.passed, totals.failed, totals.skipped);
      if (totals.left > 0) std::printf(", %d left out for lack of time", totals.left);
      std::printf("\n");
    }
    if (totals.failed > 0) return 1;
    if (choice.fp8_activations && totals.rounded == 0) {
      std::fprintf(stderr,
                   "error: no product was rounded to FP8: --fp8-activations wants a device that "
                   "does so (--set fp8_activations=on) and cases of `linear/1 gemm`\n");
      return 1;
    }
    if (totals.passed > 0 && (choice.all_variants || is_full(choice)) && !idle.empty()) {
      for (const std::string& name : idle) {
        std::fprintf(stderr,
                     "error: the device offers the kernel variant `%s`, and no case ran it\n",
                     name.c_str());
      }
      return 1;
    }
    if (totals.passed > 0) return 0;
    std::fprintf(stderr,
                 "error: nothing was checked: the plugin offers none of the chosen operators, or "
                 "--filter, --cases, --part or --seconds leave no case; --list shows the cases\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
