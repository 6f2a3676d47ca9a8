// SPDX-License-Identifier: Apache-2.0
#include "selftest_plan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/safetensors.hpp>
#include <optional>
#include <set>

namespace frt::pi05 {
namespace {

constexpr std::int64_t kMostSteps = 1000;
constexpr std::int64_t kMostRows = 4096;
constexpr float kStrongest = 100;

[[noreturn]] void reject(const Goldens& goldens, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, goldens.file() + ": " + what);
}

// All of `text` as a number.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> count_after(std::string_view name, std::string_view word) {
  if (!name.starts_with(word)) return std::nullopt;
  const std::string_view digits = name.substr(word.size());
  const bool plain =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return plain ? number_of<std::int64_t>(digits) : std::nullopt;
}

// The names in front of the last dot, in the order of the file, each once.
std::vector<std::string> run_names(const Goldens& goldens) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& tensor : goldens.names()) {
    const std::size_t dot = tensor.rfind('.');
    if (dot == std::string::npos || dot == 0) continue;
    if (seen.insert(tensor.substr(0, dot)).second) names.push_back(tensor.substr(0, dot));
  }
  return names;
}

std::vector<std::int32_t> mask_of(const Goldens& goldens, const std::string& run,
                                  std::int64_t views) {
  std::vector<std::int32_t> mask;
  if (const Golden* stated = goldens.find(run + ".mask")) {
    for (const std::int64_t bit : stated->ids) {
      if (bit != 0 && bit != 1) {
        reject(goldens, "golden tensor " + run + ".mask holds " + std::to_string(bit) +
                            ", expected 0 or 1 per view");
      }
      mask.push_back(static_cast<std::int32_t>(bit));
    }
  } else {
    const std::string_view digits = std::string_view(run).substr(1);
    const bool bits = digits.size() > 1 && digits.find_first_not_of("01") == std::string::npos;
    if (bits) {
      for (const char c : digits) mask.push_back(c - '0');
    } else {
      const std::int64_t valid = count_after(run, "v").value_or(0);
      mask.assign(static_cast<std::size_t>(std::min(valid, views + 1)), 1);
    }
  }
  const auto valid_beyond = [&](std::size_t view) {
    return view >= static_cast<std::size_t>(views) && mask[view] != 0;
  };
  for (std::size_t view = 0; view < mask.size(); ++view) {
    if (!valid_beyond(view)) continue;
    throw Error(FRT_ERR_MISMATCH, goldens.file() + ": run " + run + " sees view " +
                                      std::to_string(view) + ", the model has " +
                                      std::to_string(views) + " views");
  }
  mask.resize(static_cast<std::size_t>(views), 0);
  if (std::find(mask.begin(), mask.end(), 1) == mask.end()) {
    reject(goldens, "run " + run + " sees no view at all");
  }
  return mask;
}

bool is_view_run(const Goldens& goldens, const std::string& run) {
  if (goldens.has(run + ".mask")) return true;
  if (!count_after(run, "v")) return false;
  return goldens.has(run + ".actions") || goldens.has(run + ".v0");
}

// Equal but for the last digit.
bool alike(const Goldens& goldens, const std::string& a, const std::string& b) {
  if (!goldens.has(a) || !goldens.has(b)) return false;
  const std::vector<float>&x = goldens.get(a).values, &y = goldens.get(b).values;
  if (x.empty() || x.size() != y.size()) return false;
  return std::equal(x.begin(), x.end(), y.begin(), [](float p, float q) {
    return std::abs(p - q) <= 1e-6f * std::max({1.0f, std::abs(p), std::abs(q)});
  });
}

std::size_t base_of(const Goldens& goldens, const GoldenPlan& plan) {
  const auto is_base = [&](const ViewRun& run) {
    for (const GuidedRun& guided : plan.guided) {
      if (alike(goldens, guided.name + ".vc0", run.name + ".v0")) return true;
      if (guided.beta == 1.0f && alike(goldens, guided.name + ".actions", run.name + ".actions")) {
        return true;
      }
    }
    return alike(goldens, "rtc.zeros.actions", run.name + ".actions");
  };
  const auto usual = [](const ViewRun& run) { return run.name == "v2"; };
  auto found = std::find_if(plan.views.begin(), plan.views.end(), is_base);
  if (found == plan.views.end()) {
    found = std::find_if(plan.views.begin(), plan.views.end(), usual);
  }
  return found == plan.views.end() ? 0 : static_cast<std::size_t>(found - plan.views.begin());
}

std::int64_t steps_of(const Goldens& goldens, const GoldenPlan& plan, std::int64_t model_steps) {
  std::int64_t counted = 0;
  for (const ViewRun& run : plan.views) {
    std::int64_t own = 0;
    while (own <= kMostSteps && goldens.has(run.name + ".v" + std::to_string(own))) ++own;
    counted = std::max(counted, own);
  }
  std::int64_t steps = counted > 0 ? counted : model_steps;
  if (goldens.has("time.cond")) {
    const Golden& times = goldens.get("time.cond");
    steps = times.shape.empty() ? 0 : times.shape.front() - 1;
  }
  if (steps < 1 || steps > kMostSteps || counted > steps) {
    reject(goldens, "time.cond says " + std::to_string(steps) + " steps, the runs hold " +
                        std::to_string(counted) + "; expected the same, from 1 to " +
                        std::to_string(kMostSteps));
  }
  return steps;
}

}  // namespace

bool holds_network(const std::filesystem::path& file) {
  const auto opened = models::SafetensorsFile::open(file);
  const auto tensors = opened->tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const models::TensorView& tensor) {
    return tensor.name == "in.tokens" || tensor.name == "in_tokens";
  });
}

GoldenPlan read_plan(const Goldens& goldens, std::int64_t views, std::int64_t model_steps) {
  GoldenPlan plan;
  plan.inputs = goldens.has("in.tokens") ? "in." : "in_";
  for (const std::string& run : run_names(goldens)) {
    if (is_view_run(goldens, run)) {
      plan.views.push_back({run, mask_of(goldens, run, views)});
    } else if (run.starts_with("cfg")) {
      const auto beta = number_of<float>(std::string_view(run).substr(3));
      if (!beta || !(*beta >= 0 && *beta <= kStrongest)) {
        reject(goldens, "run " + run + ": expected cfg and a guidance strength from 0 to 100");
      }
      plan.guided.push_back({run, *beta});
    } else if (const auto steps = count_after(run, "steps")) {
      if (*steps < 1 || *steps > kMostSteps) {
        reject(goldens, "run " + run + ": expected 1 to " + std::to_string(kMostSteps) + " steps");
      }
      plan.step_counts.push_back({run, *steps});
    } else if (const auto rows = count_after(run, "h")) {
      if (*rows < 1 || *rows > kMostRows) {
        reject(goldens, "run " + run + ": expected 1 to " + std::to_string(kMostRows) + " rows");
      }
      plan.horizons.push_back({run, *rows});
    } else if (run == "rtc" && goldens.has("rtc.actions")) {
      plan.continued.push_back({run, "linear"});
    } else if (run.starts_with("rtc.") && run != "rtc.trained" && run != "rtc.lock") {
      plan.continued.push_back({run, run.substr(4)});
    }
  }
  if (plan.views.empty()) {
    reject(goldens, "no run with views: expected tensors like v2.mask and v2.actions");
  }
  plan.base = base_of(goldens, plan);
  plan.steps = steps_of(goldens, plan, model_steps);
  return plan;
}

std::int64_t locked_rows(const std::vector<float>& actions, const std::vector<float>& previous,
                         std::size_t width) {
  std::size_t rows = 0;
  const std::size_t most = width ? std::min(actions.size(), previous.size()) / width : 0;
  const auto same = [&](std::size_t row) {
    const auto at = static_cast<std::ptrdiff_t>(row * width);
    return std::equal(actions.begin() + at,
                      actions.begin() + at + static_cast<std::ptrdiff_t>(width),
                      previous.begin() + at);
  };
  while (rows < most && same(rows)) ++rows;
  return static_cast<std::int64_t>(rows);
}

}  // namespace frt::pi05
