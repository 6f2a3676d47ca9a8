// SPDX-License-Identifier: Apache-2.0
#include "parser.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <frt/io/utf8.hpp>
#include <initializer_list>
#include <string>
#include <utility>

#include "lexer.hpp"
#include "meter.hpp"

namespace frt::lm::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {}

  Body run() {
    Body body = statements({});
    if (token().kind != TokenKind::kEnd) wrong("unexpected " + shown());
    return body;
  }

 private:
  // Recursion of the parser itself, which deep templates would drive into the end of the stack.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) {
      if (++depth_ > kMostHeight) too_deep();
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  [[noreturn]] static void too_deep() {
    fail("it is nested more than " + std::to_string(kMostHeight) + " deep", FRT_ERR_UNSUPPORTED);
  }
  [[noreturn]] void wrong(const std::string& what) const {
    line_ = token().line;
    fail(what, FRT_ERR_FORMAT);
  }

  // ---- tokens ----
  const Token& token(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  std::string shown() const {
    switch (token().kind) {
      case TokenKind::kEnd:
        return "end of the template";
      case TokenKind::kData:
        return "text";
      case TokenKind::kTagBegin:
        return "'{%'";
      case TokenKind::kTagEnd:
        return "'%}'";
      case TokenKind::kPrintBegin:
        return "'{{'";
      case TokenKind::kPrintEnd:
        return "'}}'";
      default:
        return io::quote(token().text);
    }
  }
  Token take() {
    line_ = token().line;
    Token taken = token();
    if (at_ + 1 < tokens_.size()) ++at_;
    return taken;
  }
  bool sees(std::string_view op) const {
    return token().kind == TokenKind::kOperator && token().text == op;
  }
  bool sees_word(std::string_view word, std::size_t ahead = 0) const {
    return token(ahead).kind == TokenKind::kName && token(ahead).text == word;
  }
  bool sees_any_word(Words words, std::size_t ahead = 0) const {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return sees_word(word, ahead); });
  }
  bool skip(std::string_view op) { return sees(op) && (take(), true); }
  bool skip_word(std::string_view word) { return sees_word(word) && (take(), true); }
  void expect(std::string_view op) {
    if (!skip(op)) wrong("expected '" + std::string(op) + "', found " + shown());
  }
  void expect_word(std::string_view word) {
    if (!skip_word(word)) wrong("expected '" + std::string(word) + "', found " + shown());
  }
  std::string expect_name() {
    if (token().kind != TokenKind::kName) wrong("expected a name, found " + shown());
    return take().text;
  }
  void expect_tag_end() {
    if (token().kind != TokenKind::kTagEnd) wrong("expected '%}', found " + shown());
    take();
  }

  // ---- nodes ----
  template <class... Nodes>
  NodePtr make(NodeKind kind, int line, Nodes... nodes) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    (add(*node, std::move(nodes)), ...);
    return node;
  }
  void add(Node& node, NodePtr child) {
    if (child) raise(node, child->height);
    node.nodes.push_back(std::move(child));
  }
  void raise(Node& node, int height) {
    node.height = std::max(node.height, height + 1);
    if (node.height > kMostHeight) too_deep();
  }
  void set_body(Node& node, Body Node::*which, Body body) {
    for (const NodePtr& each : body) raise(node, each->height);
    node.*which = std::move(body);
  }

  // ---- statements ----
  // Up to a tag that begins with one of `ends`, whose name is the next token then.
  Body statements(Words ends) {
    const Level level(depth_);
    Body body;
    for (;;) {
      const int line = token().line;
      switch (token().kind) {
        case TokenKind::kData: {
          NodePtr node = make(NodeKind::kData, line);
          node->text = take().text;
          body.push_back(std::move(node));
          break;
        }
        case TokenKind::kPrintBegin:
          take();
          body.push_back(make(NodeKind::kPrint, line, tuple(true)));
          if (token().kind != TokenKind::kPrintEnd) wrong("expected '}}', found " + shown());
          take();
          break;
        case TokenKind::kTagBegin:
          if (const bool ends_here = sees_any_word(ends, 1); take(), ends_here) return body;
          body.push_back(statement());
          break;
        default:
          if (ends.size() != 0) {
            wrong("expected {% " + std::string(*(ends.end() - 1)) + " %}, found " + shown());
          }
          return body;
      }
    }
  }

  // The body up to {% end %}, whose tag it takes.
  void body_until(Node& node, std::string_view end) {
    set_body(node, &Node::body, statements({end}));
    expect_word(end);
    expect_tag_end();
  }

  NodePtr statement() {
    const int line = token().line;
    const std::string name = expect_name();
    if (name == "for") return for_loop(line);
    if (name == "if") return condition(line);
    if (name == "set") return assignment(line);
    if (name == "macro") return macro(line);
    if (name == "call") return call_block(line);
    if (name == "filter") return filter_block(line);
    if (name == "with") return with(line);
    if (name == "generation") {
      NodePtr node = make(NodeKind::kScope, line);
      expect_tag_end();
      body_until(*node, "endgeneration");
      return node;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) wrong("'" + name + "' outside of a loop");
      expect_tag_end();
      return make(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, line);
    }
    static constexpr std::array<std::string_view, 6> kOthers = {"import",  "from",  "include",
                                                                "extends", "block", "autoescape"};
    if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end()) {
      fail("{% " + name + " %} is not supported in chat templates", FRT_ERR_UNSUPPORTED);
    }
    wrong("unknown tag " + io::quote(name));
  }

  NodePtr for_loop(int line) {
    NodePtr node = make(NodeKind::kFor, line, target());
    expect_word("in");
    add(*node, tuple(false));
    add(*node, skip_word("if") ? expression() : nullptr);
    if (sees_word("recursive")) fail("recursive loops are not supported", FRT_ERR_UNSUPPORTED);
    expect_tag_end();
    ++loops_;
    set_body(*node, &Node::body, statements({"else", "endfor"}));
    --loops_;
    if (skip_word("else")) {
      expect_tag_end();
      set_body(*node, &Node::other, statements({"endfor"}));
    }
    expect_word("endfor");
    expect_tag_end();
    return node;
  }

  NodePtr condition(int line) {
    const Level level(depth_);
    NodePtr node = make(NodeKind::kIf, line, tuple(false));
    expect_tag_end();
    set_body(*node, &Node::body, statements({"elif", "else", "endif"}));
    if (sees_word("elif")) {
      const int next = take().line;
      Body other;
      other.push_back(condition(next));
      set_body(*node, &Node::other, std::move(other));
      return node;
    }
    if (skip_word("else")) {
      expect_tag_end();
      set_body(*node, &Node::other, statements({"endif"}));
    }
    expect_word("endif");
    expect_tag_end();
    return node;
  }

  NodePtr assignment(int line) {
    NodePtr to = target();
    if (skip("=")) {
      NodePtr node = make(NodeKind::kSet, line, std::move(to), tuple(true));
      expect_tag_end();
      return node;
    }
    NodePtr node = make(NodeKind::kSetBlock, line, std::move(to), filters(input(line)));
    expect_tag_end();
    body_until(*node, "endset");
    return node;
  }

  NodePtr macro(int line) {
    NodePtr node = make(NodeKind::kMacro, line);
    node->text = expect_name();
    parameters(*node);
    expect_tag_end();
    outside_loops([&] { body_until(*node, "endmacro"); });
    return node;
  }

  NodePtr call_block(int line) {
    NodePtr node = make(NodeKind::kCallBlock, line, nullptr);
    if (sees("(")) parameters(*node);
    NodePtr call = unary();
    if (call->kind != NodeKind::kCall) wrong("expected a call");
    raise(*node, call->height);
    node->nodes[0] = std::move(call);
    expect_tag_end();
    outside_loops([&] { body_until(*node, "endcall"); });
    return node;
  }

  NodePtr filter_block(int line) {
    NodePtr node = make(NodeKind::kFilterBlock, line, filters(one_filter(input(line))));
    expect_tag_end();
    outside_loops([&] { body_until(*node, "endfilter"); });
    return node;
  }

  NodePtr with(int line) {
    NodePtr node = make(NodeKind::kWith, line);
    while (token().kind != TokenKind::kTagEnd) {
      if (!node->nodes.empty()) expect(",");
      add(*node, target());
      expect("=");
      add(*node, expression());
    }
    expect_tag_end();
    body_until(*node, "endwith");
    return node;
  }

  template <class Do>
  void outside_loops(Do&& parse) {
    const int loops = std::exchange(loops_, 0);
    parse();
    loops_ = loops;
  }

  NodePtr input(int line) { return make(NodeKind::kInput, line); }

  // "(a, b=1)": names, and defaults behind the nodes that are there.
  void parameters(Node& node) {
    const std::size_t before = node.nodes.size();
    expect("(");
    while (!sees(")")) {
      if (!node.names.empty()) expect(",");
      if (sees(")")) break;
      node.names.push_back(expect_name());
      if (skip("=")) {
        add(node, expression());
      } else if (node.nodes.size() != before) {
        wrong("a parameter without a default follows one with a default");
      }
    }
    expect(")");
  }

  // Names, tuples of them, or an attribute of a namespace.
  NodePtr target() {
    const int line = token().line;
    NodePtr first = one_target();
    if (!sees(",")) return first;
    NodePtr node = make(NodeKind::kTuple, line, std::move(first));
    while (skip(",")) {
      if (sees("=") || sees_word("in")) break;
      add(*node, one_target());
    }
    return node;
  }

  NodePtr one_target() {
    const Level level(depth_);
    const int line = token().line;
    if (skip("(")) {
      NodePtr node = target();
      expect(")");
      return node;
    }
    NodePtr node = make(NodeKind::kName, line);
    node->text = expect_name();
    static constexpr std::array<std::string_view, 10> kReserved = {
        "true", "false", "none", "True", "False", "None", "loop", "not", "and", "or"};
    if (std::find(kReserved.begin(), kReserved.end(), node->text) != kReserved.end()) {
      wrong("cannot assign to '" + node->text + "'");
    }
    if (!skip(".")) return node;
    NodePtr attribute = make(NodeKind::kAttribute, line, std::move(node));
    attribute->text = expect_name();
    return attribute;
  }

  // ---- expressions ----
  // Values with commas between them are a tuple. `conditional`: "a if b else c" is taken.
  NodePtr tuple(bool conditional) {
    const int line = token().line;
    NodePtr first = conditional ? expression() : disjunction();
    if (!sees(",")) return first;
    NodePtr node = make(NodeKind::kTuple, line, std::move(first));
    while (skip(",")) {
      if (ends_tuple()) break;
      add(*node, conditional ? expression() : disjunction());
    }
    return node;
  }
  bool ends_tuple() const {
    return token().kind == TokenKind::kPrintEnd || token().kind == TokenKind::kTagEnd || sees(")");
  }

  NodePtr expression() {
    const Level level(depth_);
    NodePtr value = disjunction();
    while (sees_word("if")) {
      const int line = take().line;
      NodePtr condition = disjunction();
      NodePtr otherwise = skip_word("else") ? expression() : nullptr;
      value = make(NodeKind::kConditional, line, std::move(condition), std::move(value),
                   std::move(otherwise));
    }
    return value;
  }

  NodePtr disjunction() {
    NodePtr left = conjunction();
    while (sees_word("or")) {
      const int line = take().line;
      left = make(NodeKind::kOr, line, std::move(left), conjunction());
    }
    return left;
  }

  NodePtr conjunction() {
    NodePtr left = negation();
    while (sees_word("and")) {
      const int line = take().line;
      left = make(NodeKind::kAnd, line, std::move(left), negation());
    }
    return left;
  }

  NodePtr negation() {
    const Level level(depth_);
    if (!sees_word("not")) return comparison();
    const int line = take().line;
    return make(NodeKind::kNot, line, negation());
  }

  NodePtr comparison() {
    const int line = token().line;
    NodePtr first = sum();
    NodePtr node;
    for (;;) {
      std::string op;
      if (sees_word("in")) {
        op = take().text;
      } else if (sees_word("not") && sees_word("in", 1)) {
        take(), take();
        op = "not in";
      } else if (sees("==") || sees("!=") || sees("<") || sees("<=") || sees(">") || sees(">=")) {
        op = take().text;
      } else {
        return node ? std::move(node) : std::move(first);
      }
      if (!node) node = make(NodeKind::kCompare, line, std::move(first));
      node->names.push_back(std::move(op));
      add(*node, sum());
    }
  }

  NodePtr arithmetic(NodePtr left, NodePtr (Parser::*operand)()) {
    const Token op = take();
    NodePtr node = make(NodeKind::kArithmetic, op.line, std::move(left), (this->*operand)());
    node->text = op.text;
    return node;
  }
  NodePtr sum() {
    NodePtr left = concatenation();
    while (sees("+") || sees("-")) left = arithmetic(std::move(left), &Parser::concatenation);
    return left;
  }
  NodePtr concatenation() {
    NodePtr left = product();
    while (sees("~")) {
      const int line = take().line;
      left = make(NodeKind::kConcat, line, std::move(left), product());
    }
    return left;
  }
  NodePtr product() {
    NodePtr left = power();
    while (sees("*") || sees("/") || sees("//") || sees("%")) {
      left = arithmetic(std::move(left), &Parser::power);
    }
    return left;
  }
  NodePtr power() {
    NodePtr left = unary();
    while (sees("**")) left = arithmetic(std::move(left), &Parser::unary);
    return left;
  }

  NodePtr unary() { return filters(signed_value()); }

  NodePtr signed_value() {
    const Level level(depth_);
    if (!sees("-") && !sees("+")) return postfix(primary());
    const Token sign = take();
    const NodeKind kind = sign.text == "-" ? NodeKind::kNegative : NodeKind::kPositive;
    return postfix(make(kind, sign.line, signed_value()));
  }

  NodePtr primary() {
    const Level level(depth_);
    const int line = token().line;
    switch (token().kind) {
      case TokenKind::kName:
        return name();
      case TokenKind::kString: {
        NodePtr node = make(NodeKind::kString, line);
        while (token().kind == TokenKind::kString) node->text += take().text;
        return node;
      }
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return number();
      default:
        break;
    }
    if (skip("(")) {
      if (skip(")")) return make(NodeKind::kTuple, line);
      NodePtr node = tuple(true);
      expect(")");
      return node;
    }
    if (skip("[")) {
      NodePtr node = make(NodeKind::kList, line);
      values(*node, "]", false);
      return node;
    }
    if (skip("{")) {
      NodePtr node = make(NodeKind::kDict, line);
      values(*node, "}", true);
      return node;
    }
    wrong("unexpected " + shown());
  }

  // Up to `end`; `pairs`: "key: value" each.
  void values(Node& node, std::string_view end, bool pairs) {
    while (!sees(end)) {
      if (!node.nodes.empty()) expect(",");
      if (sees(end)) break;
      add(node, expression());
      if (!pairs) continue;
      expect(":");
      add(node, expression());
    }
    expect(end);
  }

  NodePtr name() {
    const Token word = take();
    static constexpr std::array<std::pair<std::string_view, NodeKind>, 6> kConstants = {
        {{"true", NodeKind::kTrue},
         {"True", NodeKind::kTrue},
         {"false", NodeKind::kFalse},
         {"False", NodeKind::kFalse},
         {"none", NodeKind::kNone},
         {"None", NodeKind::kNone}}};
    for (const auto& [text, kind] : kConstants) {
      if (word.text == text) return make(kind, word.line);
    }
    NodePtr node = make(NodeKind::kName, word.line);
    node->text = word.text;
    return node;
  }

  NodePtr number() {
    const Token taken = take();
    const char* end = taken.text.data() + taken.text.size();
    if (taken.kind == TokenKind::kInteger) {
      NodePtr node = make(NodeKind::kInteger, taken.line);
      if (std::from_chars(taken.text.data(), end, node->integer).ec != std::errc()) {
        fail("the integer " + io::quote(taken.text) + " does not fit 64 bits", FRT_ERR_UNSUPPORTED);
      }
      return node;
    }
    NodePtr node = make(NodeKind::kFloat, taken.line);
    if (std::from_chars(taken.text.data(), end, node->number).ec != std::errc()) {
      fail("the number " + io::quote(taken.text) + " is out of range", FRT_ERR_UNSUPPORTED);
    }
    return node;
  }

  NodePtr postfix(NodePtr node) {
    for (;;) {
      if (sees("(")) {
        node = call(std::move(node));
      } else if (sees("[")) {
        node = item(std::move(node));
      } else if (sees(".")) {
        const int line = take().line;
        if (token().kind == TokenKind::kInteger) {
          node = make(NodeKind::kItem, line, std::move(node), number());
        } else {
          node = make(NodeKind::kAttribute, line, std::move(node));
          node->text = expect_name();
        }
      } else {
        return node;
      }
    }
  }

  NodePtr call(NodePtr what) {
    NodePtr node = make(NodeKind::kCall, token().line, std::move(what));
    arguments(*node);
    return node;
  }

  NodePtr item(NodePtr of) {
    const int line = take().line;
    const auto part = [&] { return sees(":") || sees("]") ? nullptr : expression(); };
    NodePtr first = sees(":") ? nullptr : tuple_of_item();
    if (skip("]")) return make(NodeKind::kItem, line, std::move(of), std::move(first));
    expect(":");
    NodePtr second = part();
    NodePtr third = skip(":") ? part() : nullptr;
    expect("]");
    return make(NodeKind::kSlice, line, std::move(of), std::move(first), std::move(second),
                std::move(third));
  }
  NodePtr tuple_of_item() {
    if (sees("]")) wrong("expected an index, found ']'");
    return expression();
  }

  void arguments(Node& node) {
    expect("(");
    for (bool first = true; !sees(")"); first = false) {
      if (!first) expect(",");
      if (sees(")")) break;
      if (sees("*") || sees("**")) {
        fail("'*' in the arguments of a call is not supported", FRT_ERR_UNSUPPORTED);
      }
      const bool named = token().kind == TokenKind::kName && token(1).text == "=" &&
                         token(1).kind == TokenKind::kOperator;
      if (named) {
        node.names.push_back(take().text);
        take();
      } else if (!node.names.empty()) {
        wrong("an argument without a name follows one with a name");
      }
      add(node, expression());
    }
    expect(")");
  }

  // "|" filters, "is" tests and calls of their results.
  NodePtr filters(NodePtr node) {
    for (;;) {
      if (skip("|")) {
        node = one_filter(std::move(node));
      } else if (sees_word("is")) {
        node = test(std::move(node));
      } else if (sees("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePtr one_filter(NodePtr input) {
    NodePtr node = make(NodeKind::kFilter, token().line, std::move(input));
    node->text = expect_name();
    if (sees("(")) arguments(*node);
    return node;
  }

  NodePtr test(NodePtr input) {
    const int line = take().line;
    const bool negated = skip_word("not");
    NodePtr node = make(NodeKind::kTest, line, std::move(input));
    node->text = expect_name();
    if (sees("(")) {
      arguments(*node);
    } else if (takes_argument()) {
      add(*node, postfix(primary()));
    }
    return negated ? make(NodeKind::kNot, line, std::move(node)) : std::move(node);
  }
  bool takes_argument() const {
    switch (token().kind) {
      case TokenKind::kName:
        if (sees_word("is")) wrong("tests cannot be chained with 'is'");
        return !sees_any_word({"else", "or", "and", "if", "in", "not", "recursive"});
      case TokenKind::kString:
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return true;
      default:
        return sees("[") || sees("{");
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int& line_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source, int& line) {
  return Parser(tokenise(source, line), line).run();
}

}  // namespace frt::lm::jinja
