// SPDX-License-Identifier: Apache-2.0
// syntax.hpp - the syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace frt::lm::jinja {

enum class NodeKind {
  // ---- expressions: `nodes` are ----
  kNone,
  kTrue,
  kFalse,
  kInteger,
  kFloat,
  kString,       // text
  kName,         // text
  kList,         // its values
  kTuple,        // its values
  kDict,         // key, value, key, value ...
  kAttribute,    // of; text: the name
  kItem,         // of, key
  kSlice,        // of, begin, end, step; each of the three may be null
  kCall,         // what, arguments; `names`: of the last ones
  kFilter,       // input, arguments; text: the name
  kTest,         // input, arguments; text: the name
  kInput,        // what {% filter %} and {% set %} with a body filter
  kNot,          // value
  kNegative,     // value
  kPositive,     // value
  kArithmetic,   // left, right; text: the operator
  kConcat,       // left, right
  kAnd,          // left, right
  kOr,           // left, right
  kCompare,      // first, second, third ...; `names`: the operators between them
  kConditional,  // condition, value, otherwise (may be null)
  // ---- statements ----
  kData,         // text
  kPrint,        // value
  kFor,          // target, iterable, condition (may be null); other: {% else %}
  kIf,           // condition; other: {% else %} or one kIf for {% elif %}
  kSet,          // target (names, tuples of them, or kAttribute of a name), value
  kSetBlock,     // target, filters over kInput
  kMacro,        // defaults of the last parameters; text: the name, `names`: the parameters
  kCallBlock,    // call, defaults of the last parameters; `names`: the parameters of caller()
  kFilterBlock,  // filters over kInput
  kWith,         // target, value, target, value ...
  kScope,        // {% generation %}
  kBreak,
  kContinue
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Node {
  NodeKind kind = NodeKind::kNone;
  int line = 1;
  int height = 1;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
  std::vector<NodePtr> nodes;
  std::vector<std::string> names;
  Body body, other;
};

}  // namespace frt::lm::jinja
