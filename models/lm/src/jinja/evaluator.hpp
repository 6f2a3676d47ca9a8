// SPDX-License-Identifier: Apache-2.0
// evaluator.hpp - runs a syntax tree. Scopes are those of Jinja: a loop's iteration, a macro, a
// {% with %} and the body of {% set %}, {% call %} and {% filter %} have one, {% if %} has none.
//
// Ownership: values are counted references; scopes that a macro refers to and namespaces belong to
// the evaluator, so that nothing forms a cycle.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "syntax.hpp"
#include "value.hpp"

namespace frt::lm::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of `names`, undefined where one is missing. `what`: whose they are.
std::vector<Value> bind(std::string_view what, const Arguments& given,
                        std::initializer_list<std::string_view> names);

class Scope final : public Object {
 public:
  Scope(Meter& meter, std::shared_ptr<Scope> parent)
      : Object(meter, sizeof(Scope)), meter_(meter), parent_(std::move(parent)) {
    level_ = parent_ ? parent_->level_ + 1 : 1;
    if (level_ > kMostScopes) fail("scopes are nested too deeply", FRT_ERR_UNSUPPORTED);
  }
  // The name outlives the scope.
  void set(std::string_view name, Value value) {
    const auto [at, added] = variables_.insert_or_assign(name, std::move(value));
    if (added) grow(96);
  }
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
      meter_.work(1);
      const auto found = scope->variables_.find(name);
      if (found != scope->variables_.end()) return &found->second;
    }
    return nullptr;
  }

 private:
  Meter& meter_;
  std::shared_ptr<Scope> parent_;
  std::map<std::string_view, Value> variables_;
  int level_ = 1;
};

class Evaluator {
 public:
  // `now`: seconds since 1970, for strftime_now().
  Evaluator(Meter& meter, std::int64_t now);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // The name outlives this object.
  void set(std::string_view name, Value value) { scope_->set(name, std::move(value)); }
  PromptText run(const Body& body);

  int line() const { return line_; }  // of the node that was evaluated last
  Meter& meter() { return meter_; }
  std::int64_t now() const { return now_; }

  // ---- for filters, tests and methods ----
  Value call(const Value& what, const Arguments& arguments);
  Value attribute(const Value& of, std::string_view name);  // of.name
  Value item(const Value& of, const Value& key);            // of[key]
  Value filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool test(std::string_view name, const Value& input, const Arguments& arguments);
  Value make_namespace();
  Value text(PromptText text) { return make_text(meter_, std::move(text)); }
  Value text(std::string_view text) { return own_text(meter_, text); }

 private:
  enum class Flow { kOn, kBreak, kContinue };
  class Nested;

  Flow execute(const Body& body);
  Flow execute(const Node& node);
  Flow loop(const Node& node);
  Flow within(const Body& body);  // in a scope of its own
  Flow captured(const Node& node, PromptText& out);
  void with(const Node& node);
  void assign(const Node& target, Value value);
  void print(const Value& value);
  void emit(std::string_view text);
  Value make_macro(const Node& node, std::size_t first_default);

  Value evaluate(const Node& node);
  Value literal(const Node& node);
  Value name(const Node& node);
  Value values(const Node& node, Kind kind);
  Value dict(const Node& node);
  Value slice_of(const Node& node);
  Value call_of(const Node& node);
  Value filter_of(const Node& node);
  Value test_of(const Node& node);
  Value comparison(const Node& node);
  Value operation(const Node& node);
  Value conditional(const Node& node);
  Value call_macro(const MacroObject& macro, const Arguments& arguments);
  Arguments arguments_of(const Node& node);

  Meter& meter_;
  std::int64_t now_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<Scope>> kept_;  // that macros refer to
  std::shared_ptr<Scope> scope_;
  Value input_;  // of kInput
  PromptText* out_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
  int loops_ = 0;
};

[[noreturn]] void output_too_long();
PromptText to_repr(Meter& meter, const Value& value);

// ---- what templates find by name; null: there is none ----
using Method = Value (*)(Evaluator& evaluator, const Value& self, const Arguments& arguments);
using Test = bool (*)(Evaluator& evaluator, const Value& input, const Arguments& arguments);
Method find_filter(std::string_view name);
Test find_test(std::string_view name);
Method find_method(Kind kind, std::string_view name);
std::vector<std::pair<std::string_view, Method>> global_functions();

// A function of a value, or of none.
struct FunctionObject final : Object {
  FunctionObject(Meter& meter, Method function_, Value self_)
      : Object(meter, sizeof(FunctionObject), self_.depth() + 1),
        function(function_),
        self(std::move(self_)) {}
  const Method function;
  const Value self;
};

struct MacroObject final : Object {
  MacroObject(Meter& meter, const Node& node_, std::shared_ptr<Scope> scope_,
              std::size_t first_default_)
      : Object(meter, sizeof(MacroObject)),
        node(node_),
        scope(std::move(scope_)),
        first_default(first_default_) {}
  const Node& node;
  const std::weak_ptr<Scope> scope;  // where it was defined
  const std::size_t first_default;   // in node.nodes
};

}  // namespace frt::lm::jinja
