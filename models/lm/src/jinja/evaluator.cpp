// SPDX-License-Identifier: Apache-2.0
#include "evaluator.hpp"

#include <algorithm>
#include <frt/io/utf8.hpp>

#include "operators.hpp"
#include "text.hpp"

namespace frt::lm::jinja {

void output_too_long() {
  fail("it writes more than " + std::to_string(kMostOutput >> 20) + " MiB", FRT_ERR_UNSUPPORTED);
}

const MacroObject& Value::macro() const {
  return static_cast<const MacroObject&>(*object_);
}
const FunctionObject& Value::function() const {
  return static_cast<const FunctionObject&>(*object_);
}

std::vector<Value> bind(std::string_view what, const Arguments& given,
                        std::initializer_list<std::string_view> names) {
  std::vector<Value> bound(names.size());
  if (given.positional.size() > names.size()) {
    fail(std::string(what) + " takes at most " + std::to_string(names.size()) + " arguments");
  }
  std::copy(given.positional.begin(), given.positional.end(), bound.begin());
  for (const auto& [name, value] : given.named) {
    const auto* const at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      fail(std::string(what) + " takes no argument " + io::quote(name));
    }
    bound[static_cast<std::size_t>(at - names.begin())] = value;
  }
  return bound;
}

// One level of evaluation: deep ones end in an error before the stack does.
class Evaluator::Nested {
 public:
  explicit Nested(Evaluator& evaluator) : depth_(evaluator.depth_) {
    if (++depth_ > kMostDepth) fail("calls are nested too deeply", FRT_ERR_UNSUPPORTED);
    evaluator.meter_.work(1);
  }
  ~Nested() { --depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int& depth_;
};

Evaluator::Evaluator(Meter& meter, std::int64_t now)
    : meter_(meter), now_(now), scope_(std::make_shared<Scope>(meter, nullptr)) {
  for (const auto& [name, function] : global_functions()) {
    set(name, {Kind::kFunction, std::make_shared<FunctionObject>(meter, function, Value())});
  }
}

Evaluator::~Evaluator() = default;

PromptText Evaluator::run(const Body& body) {
  PromptText text;
  out_ = &text;
  execute(body);
  return text;
}

// ---- statements ----------------------------------------------------------------------------

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const NodePtr& node : body) {
    const Flow flow = execute(*node);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::execute(const Node& node) {
  const Nested nested(*this);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kData:
      emit(node.text);
      return Flow::kOn;
    case NodeKind::kPrint:
      print(evaluate(*node.nodes[0]));
      return Flow::kOn;
    case NodeKind::kIf:
      return execute(truth(evaluate(*node.nodes[0])) ? node.body : node.other);
    case NodeKind::kFor:
      return loop(node);
    case NodeKind::kSet:
      assign(*node.nodes[0], evaluate(*node.nodes[1]));
      return Flow::kOn;
    case NodeKind::kMacro:
      scope_->set(node.text, make_macro(node, 0));
      return Flow::kOn;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      PromptText inner;
      const Flow flow = captured(node, inner);
      const Value outer = std::exchange(input_, text(std::move(inner)));
      const bool sets = node.kind == NodeKind::kSetBlock;
      const Value value = evaluate(*node.nodes[sets ? 1 : 0]);
      input_ = outer;
      sets ? assign(*node.nodes[0], value) : print(value);
      return flow;
    }
    case NodeKind::kCallBlock: {
      const Node& call_node = *node.nodes[0];
      const Value what = evaluate(*call_node.nodes[0]);
      Arguments arguments = arguments_of(call_node);
      arguments.named.emplace_back("caller", make_macro(node, 1));
      print(call(what, arguments));
      return Flow::kOn;
    }
    case NodeKind::kWith: {
      const std::shared_ptr<Scope> outer = scope_;
      with(node);
      const Flow flow = execute(node.body);
      scope_ = outer;
      return flow;
    }
    case NodeKind::kScope:
      return within(node.body);
    case NodeKind::kBreak:
      return Flow::kBreak;
    default:
      return Flow::kContinue;
  }
}

Evaluator::Flow Evaluator::within(const Body& body) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(meter_, outer);
  const Flow flow = execute(body);
  scope_ = outer;
  return flow;
}

Evaluator::Flow Evaluator::captured(const Node& node, PromptText& out) {
  PromptText* const outer = std::exchange(out_, &out);
  const Flow flow = within(node.body);
  out_ = outer;
  return flow;
}

// The values see the outer scope.
void Evaluator::with(const Node& node) {
  std::vector<Value> given;
  for (std::size_t i = 1; i < node.nodes.size(); i += 2) given.push_back(evaluate(*node.nodes[i]));
  scope_ = std::make_shared<Scope>(meter_, scope_);
  for (std::size_t i = 0; i < given.size(); ++i) assign(*node.nodes[2 * i], given[i]);
}

Evaluator::Flow Evaluator::loop(const Node& node) {
  std::vector<Value> items = elements(meter_, evaluate(*node.nodes[1]));
  const std::shared_ptr<Scope> outer = scope_;
  if (node.nodes[2]) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      scope_ = std::make_shared<Scope>(meter_, outer);
      assign(*node.nodes[0], item);
      if (truth(evaluate(*node.nodes[2]))) kept.push_back(item);
    }
    items = std::move(kept);
    scope_ = outer;
  }
  if (items.empty()) return within(node.other);
  const Value all = make_list(meter_, std::move(items));
  ++loops_;
  Flow flow = Flow::kOn;
  for (std::size_t i = 0; i < all.items().size() && flow != Flow::kBreak; ++i) {
    meter_.work(4);
    scope_ = std::make_shared<Scope>(meter_, outer);
    scope_->set("loop", {Kind::kLoop, std::make_shared<LoopObject>(meter_, all, i, loops_ - 1)});
    assign(*node.nodes[0], all.items()[i]);
    flow = execute(node.body);
  }
  --loops_;
  scope_ = outer;
  return Flow::kOn;
}

void Evaluator::assign(const Node& target, Value value) {
  if (target.kind == NodeKind::kName) return scope_->set(target.text, std::move(value));
  if (target.kind == NodeKind::kAttribute) {
    const Value of = evaluate(*target.nodes[0]);
    if (!of.is(Kind::kNamespace)) {
      fail("cannot assign an attribute of " + type_name(of) + ", only of a namespace");
    }
    return of.name_space().set(target.text, std::move(value));
  }
  if (value.is(Kind::kUndefined)) fail(value.why());
  const std::vector<Value> parts = elements(meter_, value);
  if (parts.size() != target.nodes.size()) {
    fail("cannot take " + std::to_string(target.nodes.size()) + " values from " +
         std::to_string(parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.nodes[i], parts[i]);
}

void Evaluator::print(const Value& value) {
  if (value.is(Kind::kText)) {
    meter_.copy(value.bytes().size() + 16 * value.text().plain().size());
    out_->append(value.text());
  } else {
    out_->append(to_text(meter_, value));
  }
  if (out_->text().size() > kMostOutput) output_too_long();
}

void Evaluator::emit(std::string_view text) {
  meter_.copy(text.size());
  out_->format(text);
  if (out_->text().size() > kMostOutput) output_too_long();
}

Value Evaluator::make_macro(const Node& node, std::size_t first_default) {
  if (kept_.empty() || kept_.back() != scope_) kept_.push_back(scope_);
  return {Kind::kMacro, std::make_shared<MacroObject>(meter_, node, scope_, first_default)};
}

// ---- expressions ---------------------------------------------------------------------------

Value Evaluator::evaluate(const Node& node) {
  const Nested nested(*this);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kName:
      return name(node);
    case NodeKind::kList:
      return values(node, Kind::kList);
    case NodeKind::kTuple:
      return values(node, Kind::kTuple);
    case NodeKind::kDict:
      return dict(node);
    case NodeKind::kAttribute:
      return attribute(evaluate(*node.nodes[0]), node.text);
    case NodeKind::kItem: {
      const Value of = evaluate(*node.nodes[0]);
      return item(of, evaluate(*node.nodes[1]));
    }
    case NodeKind::kSlice:
      return slice_of(node);
    case NodeKind::kCall:
      return call_of(node);
    case NodeKind::kFilter:
      return filter_of(node);
    case NodeKind::kTest:
      return test_of(node);
    case NodeKind::kInput:
      return input_;
    case NodeKind::kCompare:
      return comparison(node);
    case NodeKind::kConditional:
      return conditional(node);
    case NodeKind::kNot:
    case NodeKind::kNegative:
    case NodeKind::kPositive:
    case NodeKind::kArithmetic:
    case NodeKind::kConcat:
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return operation(node);
    default:
      return literal(node);
  }
}

Value Evaluator::literal(const Node& node) {
  switch (node.kind) {
    case NodeKind::kTrue:
      return Value::boolean(true);
    case NodeKind::kFalse:
      return Value::boolean(false);
    case NodeKind::kInteger:
      return Value::integer(node.integer);
    case NodeKind::kFloat:
      return Value::real(node.number);
    case NodeKind::kString:
      return text(node.text);
    default:
      return Value::none();
  }
}

Value Evaluator::name(const Node& node) {
  if (const Value* found = scope_->find(node.text)) return *found;
  return undefined(meter_, "'" + node.text + "' is undefined");
}

Value Evaluator::values(const Node& node, Kind kind) {
  std::vector<Value> items;
  for (const NodePtr& each : node.nodes) items.push_back(evaluate(*each));
  return make_list(meter_, std::move(items), kind);
}

Value Evaluator::dict(const Node& node) {
  DictObject::Items items;
  for (std::size_t i = 0; i < node.nodes.size(); i += 2) {
    Value key = evaluate(*node.nodes[i]);
    items.emplace_back(std::move(key), evaluate(*node.nodes[i + 1]));
  }
  return make_dict(meter_, items);
}

Value Evaluator::slice_of(const Node& node) {
  const Value of = evaluate(*node.nodes[0]);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.nodes[i + 1]) bounds[i] = evaluate(*node.nodes[i + 1]);
  }
  return slice(meter_, of, bounds[0], bounds[1], bounds[2]);
}

Arguments Evaluator::arguments_of(const Node& node) {
  Arguments arguments;
  const std::size_t positional = node.nodes.size() - node.names.size();
  for (std::size_t i = 1; i < node.nodes.size(); ++i) {
    Value value = evaluate(*node.nodes[i]);
    if (i < positional) {
      arguments.positional.push_back(std::move(value));
    } else {
      arguments.named.emplace_back(node.names[i - positional], std::move(value));
    }
  }
  return arguments;
}

Value Evaluator::call_of(const Node& node) {
  const Value what = evaluate(*node.nodes[0]);
  const Arguments arguments = arguments_of(node);
  line_ = node.line;
  return call(what, arguments);
}

Value Evaluator::filter_of(const Node& node) {
  const Value input = evaluate(*node.nodes[0]);
  const Arguments arguments = arguments_of(node);
  line_ = node.line;
  return filter(node.text, input, arguments);
}

Value Evaluator::test_of(const Node& node) {
  const Value input = evaluate(*node.nodes[0]);
  return Value::boolean(test(node.text, input, arguments_of(node)));
}

Value Evaluator::comparison(const Node& node) {
  Value left = evaluate(*node.nodes[0]);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.nodes[i + 1]);
    if (!compare(meter_, node.names[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::operation(const Node& node) {
  Value left = evaluate(*node.nodes[0]);
  switch (node.kind) {
    case NodeKind::kNot:
      return Value::boolean(!truth(left));
    case NodeKind::kNegative:
    case NodeKind::kPositive:
      return negate(left, node.kind == NodeKind::kNegative);
    case NodeKind::kAnd:
      return truth(left) ? evaluate(*node.nodes[1]) : left;
    case NodeKind::kOr:
      return truth(left) ? left : evaluate(*node.nodes[1]);
    default:
      break;
  }
  const Value right = evaluate(*node.nodes[1]);
  line_ = node.line;
  if (node.kind == NodeKind::kConcat) return concatenate(meter_, left, right);
  return calculate(meter_, node.text, left, right);
}

Value Evaluator::conditional(const Node& node) {
  if (truth(evaluate(*node.nodes[0]))) return evaluate(*node.nodes[1]);
  if (node.nodes[2]) return evaluate(*node.nodes[2]);
  return undefined(meter_, "an 'if' expression without 'else' was false");
}

// ---- names ---------------------------------------------------------------------------------

Value Evaluator::attribute(const Value& of, std::string_view name) {
  if (of.is(Kind::kUndefined)) fail(of.why());
  if (const Method method = find_method(of.kind(), name)) {
    return {Kind::kFunction, std::make_shared<FunctionObject>(meter_, method, of)};
  }
  if (of.is(Kind::kDict)) {
    if (const Value* found = of.dict().find(text(name))) return *found;
  } else if (of.is(Kind::kNamespace)) {
    const auto& all = of.name_space().values;
    if (const auto found = all.find(name); found != all.end()) return found->second;
  } else if (of.is(Kind::kLoop)) {
    const LoopObject& loop = of.loop();
    const auto size = static_cast<std::int64_t>(loop.items.items().size());
    const auto index = static_cast<std::int64_t>(loop.index);
    if (name == "index") return Value::integer(index + 1);
    if (name == "index0") return Value::integer(index);
    if (name == "revindex") return Value::integer(size - index);
    if (name == "revindex0") return Value::integer(size - index - 1);
    if (name == "first") return Value::boolean(index == 0);
    if (name == "last") return Value::boolean(index + 1 == size);
    if (name == "length") return Value::integer(size);
    if (name == "depth") return Value::integer(loop.depth0 + 1);
    if (name == "depth0") return Value::integer(loop.depth0);
    if (name == "previtem" && index > 0) return loop.items.items()[loop.index - 1];
    if (name == "nextitem" && index + 1 < size) return loop.items.items()[loop.index + 1];
    if (name == "previtem") return undefined(meter_, "there is no previous item");
    if (name == "nextitem") return undefined(meter_, "there is no next item");
    if (name == "changed") fail("loop.changed() is not supported", FRT_ERR_UNSUPPORTED);
  }
  return undefined(meter_, type_name(of) + " has no attribute " + io::quote(name));
}

Value Evaluator::item(const Value& of, const Value& key) {
  if (of.is(Kind::kUndefined)) fail(of.why());
  if (of.is(Kind::kDict) && !key.is(Kind::kUndefined)) {
    if (const Value* found = of.dict().find(key)) return *found;
  } else if ((of.is_sequence() || of.is(Kind::kText)) && key.is_integer()) {
    const auto size = static_cast<std::int64_t>(of.is(Kind::kText) ? count_characters(of.bytes())
                                                                   : of.items().size());
    if (of.is(Kind::kText)) meter_.copy(of.bytes().size());
    const std::int64_t index = key.as_integer() < 0 ? key.as_integer() + size : key.as_integer();
    if (index >= 0 && index < size) {
      if (of.is_sequence()) return of.items()[static_cast<std::size_t>(index)];
      return slice(meter_, of, Value::integer(index), Value::integer(index + 1), Value());
    }
    return undefined(meter_, type_name(of) + " has no item " + std::to_string(index));
  }
  if (key.is(Kind::kText)) return attribute(of, key.bytes());
  return undefined(meter_, type_name(of) + " has no such item");
}

Value Evaluator::filter(std::string_view name, const Value& input, const Arguments& arguments) {
  const Nested nested(*this);
  const Method found = find_filter(name);
  if (!found) fail("there is no filter " + io::quote(name), FRT_ERR_UNSUPPORTED);
  return found(*this, input, arguments);
}

bool Evaluator::test(std::string_view name, const Value& input, const Arguments& arguments) {
  const Test found = find_test(name);
  if (!found) fail("there is no test " + io::quote(name), FRT_ERR_UNSUPPORTED);
  return found(*this, input, arguments);
}

Value Evaluator::make_namespace() {
  namespaces_.push_back(std::make_shared<NamespaceObject>(meter_));
  // Without a share in it: a namespace may hold itself.
  return {Kind::kNamespace,
          std::shared_ptr<const Object>(std::shared_ptr<void>(), namespaces_.back().get())};
}

Value Evaluator::call(const Value& what, const Arguments& arguments) {
  const Nested nested(*this);
  if (what.is(Kind::kFunction)) {
    return what.function().function(*this, what.function().self, arguments);
  }
  if (what.is(Kind::kMacro)) return call_macro(what.macro(), arguments);
  if (what.is(Kind::kUndefined)) fail(what.why());
  fail(type_name(what) + " is not callable");
}

Value Evaluator::call_macro(const MacroObject& macro, const Arguments& arguments) {
  const Node& node = macro.node;
  const std::size_t count = node.names.size();
  const std::string called = node.text.empty() ? "caller" : node.text;
  if (arguments.positional.size() > count) {
    fail("macro " + io::quote(called) + " takes at most " + std::to_string(count) + " arguments");
  }
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(meter_, macro.scope.lock());
  std::vector<bool> given(count);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    scope_->set(node.names[i], arguments.positional[i]);
    given[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(node.names.begin(), node.names.end(), name);
    if (at != node.names.end()) {
      scope_->set(*at, value);
      given[static_cast<std::size_t>(at - node.names.begin())] = true;
    } else if (name == "caller") {
      scope_->set("caller", value);
    } else {
      fail("macro " + io::quote(called) + " takes no argument " + io::quote(name));
    }
  }
  const std::size_t defaults = node.nodes.size() - macro.first_default;
  for (std::size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const std::size_t from_end = count - i;
    scope_->set(node.names[i],
                from_end <= defaults
                    ? evaluate(*node.nodes[node.nodes.size() - from_end])
                    : undefined(meter_, "parameter " + io::quote(node.names[i]) + " is missing"));
  }
  PromptText out;
  PromptText* const outer_out = std::exchange(out_, &out);
  const int loops = std::exchange(loops_, 0);
  execute(node.body);
  loops_ = loops;
  out_ = outer_out;
  scope_ = outer;
  return text(std::move(out));
}

}  // namespace frt::lm::jinja
