// SPDX-License-Identifier: Apache-2.0
// A tick allocates nothing here: texts of errors are made where there is one, and what is kept of
// an episode has its room from the reset.
#include "runtime/plugin_environment.hpp"

#include <frt/core/services.hpp>
#include <frt/core/setup_lock.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <frt/sender.hpp>
#include <frt/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "robot/record/episode_svg.hpp"
#include "runtime/plugin_call.hpp"

namespace frt::host {
namespace {

constexpr std::size_t kDrawnEpisodes = 12;
constexpr std::size_t kDrawnTicks = 4096;  // of one episode

uint64_t elements_of(const frt_environment_port& port) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < port.rank; ++i) count *= static_cast<uint64_t>(port.shape[i]);
  return count;
}

class InfoReader {
 public:
  explicit InfoReader(const std::string& sender) : sender_(sender) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(FRT_ERR_MISMATCH, sender_ + ": " + what + "; correct it in the plugin");
  }
  std::string_view text(const char* given, const std::string& what) const {
    return checked_text(given, sender_ + ": " + what, FRT_ENVIRONMENT_MAX_INSTRUCTION);
  }

  void port(const frt_environment_port& port, const std::string& what) const {
    if (text(port.name, "the name of " + what).empty()) refuse(what + " has no name");
    const std::string named = what + " '" + port.name + "' ";
    text(port.doc, "what it says of " + named);
    if (port.rank > FRT_ARRAY_MAX_RANK) refuse(named + "has rank " + std::to_string(port.rank));
    uint64_t left = FRT_ARRAY_MAX_ELEMENTS;
    for (uint32_t i = 0; i < port.rank; ++i) {
      const int64_t size = port.shape[i];
      if (size < 1 || static_cast<uint64_t>(size) > left) {
        refuse(named + "has " + std::to_string(size) + " as a size");
      }
      left /= static_cast<uint64_t>(size);
    }
    const bool image = port.dtype == FRT_DTYPE_U8 && port.rank == 3 && port.shape[2] == 3;
    const bool state = port.dtype == FRT_DTYPE_F32 && port.rank == 1;
    const std::string is = "is " + array_type(port.dtype, port.rank, port.shape);
    switch (port.kind) {
      case FRT_ENVIRONMENT_ARRAY:
        if (dtype_bits(port.dtype) < 8) {
          refuse(named + "has the type " + std::to_string(port.dtype) +
                 ", which is none that arrays have");
        }
        return;
      case FRT_ENVIRONMENT_IMAGE:
        if (!image) refuse(named + is + "; an image is u8[height,width,3]");
        return;
      case FRT_ENVIRONMENT_STATE:
        if (!state) refuse(named + is + "; a state is f32[values]");
        return;
      default:
        throw Error(FRT_ERR_UNSUPPORTED, sender_ + ": " + named + "has the kind " +
                                             std::to_string(port.kind) +
                                             ", which this host does not know");
    }
  }

  void ports(const frt_environment_info& info) const {
    require_range(sender_, "port_count", info.port_count, 1, FRT_ENVIRONMENT_MAX_PORTS);
    for (uint32_t i = 0; i < info.port_count; ++i) {
      port(info.ports[i], "port " + std::to_string(i));
      for (uint32_t other = 0; other < i; ++other) {
        if (std::strcmp(info.ports[i].name, info.ports[other].name) != 0) continue;
        refuse("two ports are called '" + std::string(info.ports[i].name) + "'");
      }
    }
  }

  void action(const frt_environment_info& info) const {
    const frt_environment_port& action = *info.action;
    port(action, "the action");
    if (action.dtype != FRT_DTYPE_F64 || action.rank != 1 ||
        action.shape[0] > FRT_ENVIRONMENT_MAX_ACTION) {
      refuse("the action is " + array_type(action.dtype, action.rank, action.shape) +
             "; it must be f64 of 1 to " + std::to_string(FRT_ENVIRONMENT_MAX_ACTION) + " values");
    }
    for (int64_t i = 0; i < action.shape[0]; ++i) {
      const bool finite = (!info.action_low || std::isfinite(info.action_low[i])) &&
                          (!info.action_high || std::isfinite(info.action_high[i]));
      const bool ordered =
          !info.action_low || !info.action_high || info.action_low[i] <= info.action_high[i];
      if (!finite || !ordered) {
        refuse("the limits of value " + std::to_string(i) + " of the action are no range");
      }
    }
  }

  void tasks(const frt_environment_info& info) const {
    require_range(sender_, "task_count", info.task_count, 0, FRT_ENVIRONMENT_MAX_TASKS);
    if (info.task_count > 0 && !info.tasks) refuse("task_count without tasks");
    for (uint32_t i = 0; i < info.task_count; ++i) {
      const std::string what = "task " + std::to_string(i);
      const std::string_view name = text(info.tasks[i].name, "the name of " + what);
      if (name.empty()) refuse(what + " has no name");
      if (name.find_first_of(" \t\n\v\f\r") != name.npos) {
        refuse("the name of " + what + " is no single word: '" + std::string(name) + "'");
      }
      for (uint32_t before = 0; before < i; ++before) {
        if (name == info.tasks[before].name) {
          refuse("task " + std::to_string(before) + " and " + what + " have one name: '" +
                 std::string(name) + "'");
        }
      }
      text(info.tasks[i].instruction, "the instruction of " + what);
    }
  }

 private:
  const std::string& sender_;
};

struct Drawing {
  std::string text;
  bool full = false;
};

frt_status take_text(void* user, const void* data, uint64_t bytes) noexcept {
  auto& drawing = *static_cast<Drawing*>(user);
  drawing.full = drawing.full || bytes > FRT_ENVIRONMENT_MAX_DRAWING - drawing.text.size();
  if (drawing.full) return FRT_ERR_OUT_OF_RANGE;
  try {
    drawing.text.append(static_cast<const char*>(data), bytes);
    return FRT_OK;
  } catch (...) {
    return FRT_ERR_OUT_OF_MEMORY;
  }
}

}  // namespace

std::string array_type(frt_dtype dtype, uint32_t rank, const int64_t* shape) {
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (uint32_t i = 0; i < rank; ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

frt_environment_info read_environment_info(const frt_environment_v1& table,
                                           frt_environment environment, const std::string& sender) {
  const auto info = ask<frt_environment_info>(
      sender, [&](frt_environment_info* out) { return table.info(environment, out); });
  const InfoReader reader(sender);
  if (info.flags & ~FRT_ENVIRONMENT_DETERMINISTIC) {
    throw Error(FRT_ERR_UNSUPPORTED, sender + ": its info has the flags " +
                                         std::to_string(info.flags) +
                                         ", of which this host does not know all");
  }
  if (table.draw && !(info.flags & FRT_ENVIRONMENT_DETERMINISTIC)) {
    reader.refuse("it draws episodes and does not say that it is deterministic");
  }
  reader.text(info.doc, "what it says of itself");
  reader.ports(info);
  reader.action(info);
  reader.tasks(info);
  if (!std::isfinite(info.period_s) || info.period_s < 0) {
    reader.refuse("period_s is " + std::to_string(info.period_s) + ", which is no time");
  }
  return info;
}

std::vector<std::string> names_for_policy(const frt_environment_info& info,
                                          const std::vector<ObservedName>& names) {
  std::vector<std::string> result(info.port_count);
  std::vector<bool> taken(names.size());
  const auto take = [&](uint32_t port, const auto& fits) {
    for (std::size_t i = 0; i < names.size() && result[port].empty(); ++i) {
      if (taken[i] || !fits(names[i])) continue;
      taken[i] = true;
      result[port] = names[i].name;
    }
  };
  for (uint32_t i = 0; i < info.port_count; ++i) {
    take(i, [&](const ObservedName& name) { return name.name == info.ports[i].name; });
  }
  for (uint32_t i = 0; i < info.port_count; ++i) {
    if (info.ports[i].kind != FRT_ENVIRONMENT_ARRAY) {
      const bool image = info.ports[i].kind == FRT_ENVIRONMENT_IMAGE;
      take(i, [&](const ObservedName& name) { return name.image == image; });
    }
    if (result[i].empty()) result[i] = info.ports[i].name;
  }
  return result;
}

// Runs one function of the table. A call that succeeds allocates nothing here.
template <class Body>
void PluginEnvironment::call(const char* function, const Body& body, Pace pace) const {
  const PluginCall running(sender_.c_str(), function, pace == Pace::kTick);
  frt_error error{};
  const frt_status status = contain(sender_, function, [&] { return body(&error); });
  if (status == FRT_OK) return;
  check(status, error, error.message[0] ? sender_ : sender_ + ": its `" + function + "`");
}

PluginEnvironment::PluginEnvironment(const core::OpenPlugin& plugin, std::string name,
                                     const core::Config& options, const EnvironmentRequest& request)
    : plugin_(plugin),
      name_(std::move(name)),
      sender_("environment '" + name_ + "' (" + plugin.sender() + ")"),
      suffix_(request.suffix),
      table_(plugin.require<frt_environment_v1>(FRT_EXT_ENVIRONMENT)) {
  frt_environment_params params{};
  params.struct_size = sizeof(params);
  params.name = name_.c_str();
  params.config = options.c();
  {
    const auto alone = core::lock_plugin_setup();
    const core::SetupWatch watching = plugin_.watch("create");
    call("create", [&](frt_error* error) {
      return table_.create(plugin_.handle(), &params, &handle_, error);
    });
  }
  if (!handle_) {
    throw Error(FRT_ERR_INTERNAL, sender_ + ": create reported success but made no object");
  }
  try {
    info_ = read_environment_info(table_, handle_, sender_);
    names_ = names_for_policy(info_, request.names);
  } catch (...) {
    const auto alone = core::lock_plugin_setup();
    plugin_.end("destroy", [&] { table_.destroy(handle_); });
    throw;
  }
  action_dim_ = static_cast<uint32_t>(info_.action->shape[0]);
  arrays_.resize(info_.port_count);
}

PluginEnvironment::~PluginEnvironment() {
  const auto alone = core::lock_plugin_setup();
  plugin_.end("destroy", [&] { table_.destroy(handle_); });
}

void PluginEnvironment::reset(uint64_t seed, uint32_t task) {
  frt_environment_start start{};
  start.struct_size = sizeof(start);
  start.task = task;
  start.seed = seed;
  {
    const core::SetupWatch watching = plugin_.watch("reset");
    call("reset", [&](frt_error* error) { return table_.reset(handle_, &start, error); });
  }
  flags_ = 0;
  reward_ = 0;
  seed_ = seed;
  actions_.clear();
  if (keeps_actions_) {
    const std::size_t ticks =
        info_.max_steps ? std::min<std::size_t>(info_.max_steps, kDrawnTicks) : kDrawnTicks;
    actions_.reserve(ticks * action_dim_);
  }
  observe();  // the instruction
}

void PluginEnvironment::set_instruction(const char* text) {
  if (told_ == text && !instruction_.empty()) return;
  told_ = checked_text(text, sender_ + ": its instruction", FRT_ENVIRONMENT_MAX_INSTRUCTION);
  instruction_ = told_ + suffix_;
}

// One array against what its port says.
void PluginEnvironment::take_array(const frt_environment_port& port, const frt_array& array) {
  const auto refuse = [&](frt_status status, const std::string& what) {
    throw Error(status,
                sender_ + ": its array '" + port.name + "' " + what + "; correct it in the plugin");
  };
  const bool same = array.dtype == port.dtype && array.rank == port.rank &&
                    std::equal(port.shape, port.shape + port.rank, array.shape);
  if (!same) {
    refuse(FRT_ERR_MISMATCH,
           "is " + array_type(array.dtype, std::min(array.rank, FRT_ARRAY_MAX_RANK), array.shape) +
               ", its port says " + array_type(port.dtype, port.rank, port.shape));
  }
  if (!array.data) refuse(FRT_ERR_MISMATCH, "has no data");
  const uint64_t count = elements_of(port);
  if (port.kind == FRT_ENVIRONMENT_IMAGE) {
    const std::span pixels(static_cast<const uint8_t*>(array.data), count);
    if (images_.empty()) {
      images_ = pixels;
      return;
    }
    if (joined_images_.empty()) joined_images_.assign(images_.begin(), images_.end());
    joined_images_.insert(joined_images_.end(), pixels.begin(), pixels.end());
    images_ = joined_images_;
  } else if (port.kind == FRT_ENVIRONMENT_STATE) {
    const auto* values = static_cast<const float*>(array.data);
    for (uint64_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i])) continue;
      refuse(FRT_ERR_FORMAT, "has " + std::to_string(values[i]) + " as value " + std::to_string(i));
    }
    state_.insert(state_.end(), values, values + count);
  }
}

const frt_observation& PluginEnvironment::observe() {
  frt_observation given{};
  given.struct_size = sizeof(given);
  call(
      "observe", [&](frt_error* error) { return table_.observe(handle_, &given, error); },
      Pace::kTick);
  const auto seen = read_table<frt_observation>(&given, sender_, sizeof(given));
  if (seen.array_count != info_.port_count || !seen.arrays) {
    throw Error(FRT_ERR_MISMATCH,
                sender_ + ": its `observe` gives " + std::to_string(seen.array_count) + " arrays" +
                    (seen.arrays ? "" : " at NULL") + ", it has " +
                    std::to_string(info_.port_count) + " ports; correct it in the plugin");
  }
  if (!seen.prompt || seen.prompt_tokens) {
    throw Error(FRT_ERR_MISMATCH, sender_ + ": its `observe` gives " +
                                      (seen.prompt ? "prompt_tokens" : "no prompt") +
                                      "; give the instruction as a text");
  }
  images_ = {};
  joined_images_.clear();
  state_.clear();
  for (uint32_t i = 0; i < info_.port_count; ++i) {
    take_array(info_.ports[i], seen.arrays[i]);
    arrays_[i] = seen.arrays[i];
    arrays_[i].name = names_[i].c_str();
  }
  set_instruction(seen.prompt);
  observation_ = {};
  observation_.struct_size = sizeof(observation_);
  observation_.array_count = info_.port_count;
  observation_.arrays = arrays_.data();
  observation_.prompt = instruction_.c_str();
  return observation_;
}

void PluginEnvironment::apply(std::span<const double> action) {
  frt_environment_result given{};
  given.struct_size = sizeof(given);
  call(
      "step", [&](frt_error* error) { return table_.step(handle_, action.data(), &given, error); },
      Pace::kTick);
  const auto result = read_table<frt_environment_result>(&given, sender_, sizeof(given));
  constexpr uint32_t kKnown = FRT_EPISODE_SUCCEEDED | FRT_EPISODE_OVER;
  if (result.flags & ~kKnown) {
    throw Error(FRT_ERR_UNSUPPORTED, sender_ + ": its `step` gives the flags " +
                                         std::to_string(result.flags) +
                                         ", of which this host does not know all");
  }
  if (!std::isfinite(result.reward)) {
    throw Error(FRT_ERR_FORMAT, sender_ + ": its `step` gives the reward " +
                                    std::to_string(result.reward) +
                                    "; a reward is finite, correct it in the plugin");
  }
  flags_ = result.flags;
  reward_ = result.reward;
  if (actions_.capacity() - actions_.size() >= action_dim_ && keeps_actions_) {
    actions_.insert(actions_.end(), action.begin(), action.begin() + action_dim_);
  }
}

bool PluginEnvironment::operator_action(std::span<double> action) {
  if (!table_.expert_action) return false;
  call(
      "expert_action",
      [&](frt_error* error) { return table_.expert_action(handle_, action.data(), error); },
      Pace::kTick);
  for (uint32_t i = 0; i < action_dim_; ++i) {
    if (std::isfinite(action[i])) continue;
    throw Error(FRT_ERR_FORMAT, sender_ + ": its `expert_action` gives " +
                                    std::to_string(action[i]) + " as value " + std::to_string(i) +
                                    "; correct it in the plugin");
  }
  return true;
}

std::vector<EnvironmentSubgoal> PluginEnvironment::subgoals() const {
  std::vector<EnvironmentSubgoal> subgoals;
  if (!table_.set_task) return subgoals;
  for (uint32_t i = 0; i < info_.task_count; ++i) {
    subgoals.push_back({info_.tasks[i].name, info_.tasks[i].instruction});
  }
  return subgoals;
}

void PluginEnvironment::choose(std::size_t index) {
  call("set_task", [&](frt_error* error) {
    return table_.set_task(handle_, static_cast<uint32_t>(index), error);
  });
  flags_ &= ~FRT_EPISODE_SUCCEEDED;
  set_instruction(info_.tasks[index].instruction);
}

std::string PluginEnvironment::draw(uint32_t frames) {
  if (!table_.draw) throw Error(FRT_ERR_UNSUPPORTED, sender_ + ": it draws nothing");
  Drawing drawing;
  try {
    const core::SetupWatch watching = plugin_.watch("draw");
    call("draw", [&](frt_error* error) {
      return table_.draw(handle_, frames, take_text, &drawing, error);
    });
  } catch (const Error&) {
    if (!drawing.full) throw;
  }
  if (drawing.full) {
    throw Error(FRT_ERR_OUT_OF_RANGE, sender_ + ": its drawing has more than " +
                                          std::to_string(FRT_ENVIRONMENT_MAX_DRAWING) +
                                          " bytes; draw less");
  }
  const std::string& text = drawing.text;
  // The zero ends what is checked.
  if (text.find('\0') != std::string::npos) {
    throw Error(FRT_ERR_FORMAT, sender_ + ": its drawing has a zero byte");
  }
  checked_text(text.c_str(), sender_ + ": its drawing", FRT_ENVIRONMENT_MAX_DRAWING + 1);
  return drawing.text;
}

// The first episodes, by their seeds and actions: how long all of them move is known at the end
// alone. Each is done once more then, which is why an environment that draws is deterministic.
class PluginEnvironment::Picture final : public EpisodePicture {
 public:
  explicit Picture(PluginEnvironment& environment) : environment_(environment) {
    environment_.keeps_actions_ = true;
  }
  void add_episode() override {
    if (episodes_.size() >= kDrawnEpisodes) return;
    episodes_.push_back(
        {environment_.seed_, environment_.actions_, environment_.told_, environment_.succeeded()});
    environment_.keeps_actions_ = episodes_.size() < kDrawnEpisodes;
  }
  std::string svg(const std::string& title, const std::string& line,
                  std::span<const double> chunk_ms) override {
    environment_.keeps_actions_ = false;
    const std::size_t width = environment_.action_dim();
    std::size_t longest = 0;
    for (const Kept& kept : episodes_) longest = std::max(longest, kept.actions.size() / width);
    std::vector<DrawnEpisode> drawn;
    for (const Kept& kept : episodes_) {
      environment_.reset(kept.seed);
      for (std::size_t at = 0; at < kept.actions.size(); at += width) {
        environment_.apply(std::span(kept.actions).subspan(at, width));
      }
      drawn.push_back({environment_.draw(drawing_frames(longest)), kept.instruction, kept.success,
                       kept.actions.size() / width});
    }
    return episodes_svg(drawn, title, line, chunk_ms);
  }

 private:
  struct Kept {
    uint64_t seed;
    std::vector<double> actions;
    std::string instruction;
    bool success;
  };
  PluginEnvironment& environment_;
  std::vector<Kept> episodes_;
};

std::unique_ptr<EpisodePicture> PluginEnvironment::picture() {
  return draws() ? std::make_unique<Picture>(*this) : nullptr;
}

}  // namespace frt::host
