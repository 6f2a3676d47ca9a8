// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

namespace frt::pi05 {
namespace {

constexpr std::int32_t kBins = 256;
constexpr std::int32_t kBeginId = 2;

std::string bins_text(std::span<const double> state) {
  std::string text;
  for (const double value : state) {
    text += (text.empty() ? "" : " ") + std::to_string(state_bin(value));
  }
  return text;
}

struct Field {
  std::string_view name;  // "{task}"
  std::string_view value;
};

// `form` with each field's name replaced by its value, in one pass: a value that holds a field's
// name (an instruction may) stays as it is.
std::string fill(std::string_view form, std::initializer_list<Field> fields) {
  std::string text;
  while (!form.empty()) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& candidate) {
      return form.starts_with(candidate.name);
    });
    if (field != fields.end()) {
      text += field->value;
      form.remove_prefix(field->name.size());
    } else {
      text += form.front();
      form.remove_prefix(1);
    }
  }
  return text;
}

// Without a tag the line that holds nothing else goes, too.
void drop_tag(std::string& text) {
  for (const std::string_view line : {"{tag}\n", "\n{tag}"}) {
    const std::size_t at = text.find(line);
    if (at == std::string::npos) continue;
    const bool alone =
        line.back() == '\n' ? at == 0 || text[at - 1] == '\n' : at + line.size() == text.size();
    if (alone) {
      text.erase(at, line.size());
      return;
    }
  }
}

}  // namespace

std::string clean_task(std::string_view task) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const std::size_t first = task.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  std::string text(task.substr(first, task.find_last_not_of(kSpace) - first + 1));
  std::replace(text.begin(), text.end(), '_', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::int32_t state_bin(double value) {
  if (std::isnan(value)) return kBins - 1;
  // The edges are -1 + i / 128, which are exact: the number of edges at or below, less one.
  const double at = std::floor((value + 1.0) * (kBins / 2));
  std::int32_t bin = at < -1 ? -1 : at > kBins - 1 ? kBins - 1 : static_cast<std::int32_t>(at);
  // value + 1 may have been rounded across an edge.
  const auto edge = [](std::int32_t i) { return -1.0 + static_cast<double>(i) / (kBins / 2); };
  while (bin >= 0 && value < edge(bin)) --bin;
  while (bin + 1 < kBins && value >= edge(bin + 1)) ++bin;
  return bin;
}

Prompt build_prompt(const PromptParts& parts) {
  const std::string bins = parts.with_state ? bins_text(parts.state) : "";
  const auto with_state = [&](const std::string& task, const std::string& before_action) {
    return "Task: " + task + ", State: " + bins + ";\n" + before_action + "Action: ";
  };
  std::string task = clean_task(parts.task);
  const std::string tag(parts.tag);
  if (tag.empty() || parts.form == "openpi_clean") {
    if (parts.form != "openpi_clean" && parts.form != "raw_newline" &&
        parts.form != "before_action") {
      std::string text(parts.form);
      drop_tag(text);
      return {fill(text, {{"{task}", task}, {"{state}", bins}, {"{tag}", ""}}), false};
    }
    if (!tag.empty()) {
      task = clean_task(parts.task.empty() ? tag : std::string(parts.task) + "\n" + tag);
    }
    if (parts.with_state) return {with_state(task, ""), false};
    return {task, true};
  }
  if (parts.form == "raw_newline" || (parts.form == "before_action" && !parts.with_state)) {
    task = task.empty() ? tag : task + "\n" + tag;
    if (parts.with_state) return {with_state(task, ""), false};
    return {task, true};
  }
  if (parts.form == "before_action") return {with_state(task, tag + "\n"), false};
  return {fill(parts.form, {{"{task}", task}, {"{state}", bins}, {"{tag}", tag}}), false};
}

std::vector<std::int32_t> encode_prompt(const models::SentencePiece& tokenizer,
                                        const Prompt& prompt, std::size_t max_tokens) {
  std::vector<std::int32_t> ids = {tokenizer.bos() >= 0 ? tokenizer.bos() : kBeginId};
  const std::vector<std::int32_t> text = tokenizer.encode(prompt.text, max_tokens);
  ids.insert(ids.end(), text.begin(), text.end());
  if (!prompt.newline) return ids;
  const std::vector<std::int32_t> newline = tokenizer.encode("\n");
  ids.insert(ids.end(), newline.begin(), newline.end());
  return ids;
}

}  // namespace frt::pi05
