// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <frt/lm/jinja.hpp>

#include "evaluator.hpp"
#include "parser.hpp"

namespace frt::lm {

struct JinjaTemplate::Tree {
  jinja::Body body;
};

namespace {

constexpr std::size_t kMostMessage = 500;  // bytes of an error; it may quote the conversation

// What a template says of a conversation goes to whoever sent it (frt/chat.h): without the name,
// which is a path.
[[noreturn]] void rethrow(const jinja::Fault& fault, const std::string& name, int line) {
  std::string what = fault.what();
  if (what.size() > kMostMessage) what = what.substr(0, kMostMessage) + "...";
  const bool of_sender = fault.status() == FRT_ERR_INVALID_ARGUMENT;
  throw Error(fault.status(), "chat template" + (of_sender ? "" : " " + name) + ", line " +
                                  std::to_string(line) + ": " + io::printable(what));
}

bool mentions_name(const jinja::Body& body, std::string_view name) {
  return std::any_of(body.begin(), body.end(), [&](const jinja::NodePtr& node) {
    if (!node) return false;
    if (node->kind == jinja::NodeKind::kName && node->text == name) return true;
    return mentions_name(node->nodes, name) || mentions_name(node->body, name) ||
           mentions_name(node->other, name);
  });
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  int line = 1;
  try {
    tree_ = std::make_unique<const Tree>(Tree{jinja::parse(source, line)});
  } catch (const jinja::Fault& fault) {
    rethrow(fault, name_, line);
  }
}

JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;
JinjaTemplate::~JinjaTemplate() = default;

models::PromptText JinjaTemplate::render(const models::Json& outside, const models::Json& own,
                                         std::int64_t now) const {
  jinja::Meter meter;
  int line = 1;
  try {
    jinja::Evaluator evaluator(meter, now);
    try {
      for (const auto& [variables, from_outside] :
           {std::pair(&own, false), std::pair(&outside, true)}) {
        for (const auto& [name, value] : variables->items()) {
          evaluator.set(name, jinja::from_json(meter, value, from_outside));
        }
      }
      return evaluator.run(tree_->body);
    } catch (const jinja::Fault&) {
      line = evaluator.line();
      throw;
    }
  } catch (const jinja::Fault& fault) {
    rethrow(fault, name_, line);
  }
}

bool JinjaTemplate::mentions(std::string_view variable) const {
  return mentions_name(tree_->body, variable);
}

}  // namespace frt::lm
