// SPDX-License-Identifier: Apache-2.0
// Where Oniguruma and PCRE2 (UTF, UCP, MULTILINE, newline = LF) differ, the pattern is rewritten:
//
//   \s \S          White_Space, which PCRE2's \s is not (it adds U+180E):  [\t-\r\x{85}\p{Z}]
//   \w \W, \d \D   Oniguruma's definitions as classes of general categories
//   \h \H, \v      hexadecimal digit, vertical tab (PCRE2: horizontal and vertical white space)
//   \p{Script}     the script itself; PCRE2 would take its script extensions:  \p{sc:Script}
//   ^ $            match at lines in Ruby syntax, hence MULTILINE
//
// and what has no sure equivalent is refused by name: word boundaries, anchors, back references,
// class intersections, POSIX brackets, named groups, {n,m}+ and {,n}.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "split_regex.hpp"

#include <pcre2.h>

#include <frt/error.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "text.hpp"

namespace frt::models {
namespace {

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kDigit = R"(\p{Nd})";
constexpr std::string_view kHex = "0-9A-Fa-f";

// Of one match. An expression that tries every way to share out a run of letters would take years.
constexpr std::uint32_t kMostMatchSteps = 10'000'000;
constexpr std::uint32_t kMostMatchKibibytes = 256 << 10;

constexpr std::array kCategories = {"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo",
                                    "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No",
                                    "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc",
                                    "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        bracket();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        interval();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(where_) + ": the expression uses " + what +
                                         " at offset " + std::to_string(at_) +
                                         ", which is not supported");
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // A class of characters: its members inside brackets, a bracket of its own outside.
  void put_class(std::string_view members, bool negated, bool in_bracket, char letter) {
    if (in_bracket && negated) refuse(std::string("\\") + letter + " inside brackets");
    if (in_bracket) {
      out_ += members;
    } else {
      out_.append(negated ? "[^" : "[").append(members).append("]");
    }
  }

  void escape(bool in_bracket) {
    if (at_ + 1 >= in_.size()) refuse("a single \\ at the end");
    const char letter = in_[at_ + 1];
    switch (letter) {
      case 's':
      case 'S':
        put_class(kSpace, letter == 'S', in_bracket, letter);
        break;
      case 'w':
      case 'W':
        put_class(kWord, letter == 'W', in_bracket, letter);
        break;
      case 'd':
      case 'D':
        put_class(kDigit, letter == 'D', in_bracket, letter);
        break;
      case 'h':
      case 'H':
        put_class(kHex, letter == 'H', in_bracket, letter);
        break;
      case 'v':
        out_ += "\\x0b";
        break;
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        out_.append("\\").append(1, letter);
        break;
      case 'p':
      case 'P':
        property(letter);
        return;
      case 'x':
      case 'u':
        code_point(letter);
        return;
      default:
        if (std::isalnum(static_cast<unsigned char>(letter))) {
          refuse(std::string("\\") + letter);
        }
        out_.append("\\").append(1, letter);  // an escaped mark
    }
    at_ += 2;
  }

  // \p{L}, \p{^L}, \P{Han}
  void property(char letter) {
    const std::size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == in_.npos) {
      refuse(std::string("\\") + letter + " without a name in braces");
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = letter == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool word = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    if (!word) refuse("the property " + io::quote(name));
    const bool category =
        std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    out_.append(negated ? "\\P{" : "\\p{").append(category ? "" : "sc:").append(name).append("}");
    at_ = close + 1;
  }

  // \xHH, \x{HHHH}, \uHHHH
  void code_point(char letter) {
    std::size_t first = at_ + 2, count = 0;
    const bool braces = letter == 'x' && first < in_.size() && in_[first] == '{';
    if (braces) ++first;
    const std::size_t most = braces ? 8 : letter == 'u' ? 4 : 2;
    while (count < most && first + count < in_.size() &&
           std::isxdigit(static_cast<unsigned char>(in_[first + count]))) {
      ++count;
    }
    const std::size_t end = first + count + (braces ? 1 : 0);
    const bool closed = !braces || (first + count < in_.size() && in_[first + count] == '}');
    if (count == 0 || !closed || (letter == 'u' && count != 4)) {
      refuse(std::string("\\") + letter + " without hexadecimal digits");
    }
    out_.append("\\x{").append(in_.substr(first, count)).append("}");
    at_ = end;
  }

  void bracket() {
    out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') refuse("] as the first member of brackets");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape(true);
        continue;
      }
      if (in_[at_] == '[') refuse("brackets inside brackets");
      if (next_is("&&")) refuse("the intersection && inside brackets");
      out_ += in_[at_++];
    }
    if (at_ == in_.size()) refuse("brackets without an end");
    out_ += in_[at_++];
  }

  void group() {
    constexpr std::array kAllowed = {"(?:", "(?=",  "(?!",   "(?<=", "(?<!",
                                     "(?>", "(?i:", "(?-i:", "(?i)", "(?-i)"};
    std::string_view opening = "(";
    if (next_is("(?") || next_is("(*")) {
      const auto found = std::find_if(kAllowed.begin(), kAllowed.end(),
                                      [&](const char* text) { return next_is(text); });
      if (found == kAllowed.end()) refuse("the group " + io::quote(in_.substr(at_, 4)));
      opening = *found;
    }
    out_ += opening;
    at_ += opening.size();
  }

  // {n}, {n,}, {n,m}: the same in both, but Ruby reads a + after it as a second quantifier.
  void interval() {
    const std::size_t close = in_.find('}', at_);
    const std::string_view body = close == in_.npos ? "" : in_.substr(at_ + 1, close - at_ - 1);
    const std::size_t comma = std::min(body.find(','), body.size());
    const auto digits = [](std::string_view text) {
      return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    const bool good = comma > 0 && digits(body.substr(0, comma)) &&
                      (comma == body.size() || digits(body.substr(comma + 1)));
    if (!good) refuse("{ that is no interval {n}, {n,} or {n,m}");
    if (in_.substr(close + 1).starts_with('+')) refuse("+ after an interval");
    out_ += in_.substr(at_, close + 1 - at_);
    at_ = close + 1;
  }

  std::string_view in_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
};

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(text);
}

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;
using CompiledCode = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;

}  // namespace

std::string pcre_pattern(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

struct SplitRegex::Code {
  CompiledCode code;
  std::string where;
};

SplitRegex::SplitRegex(std::string_view pattern, bool literal, std::string_view where) {
  const std::string text = literal ? std::string(pattern) : pcre_pattern(pattern, where);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw Error(FRT_ERR_OUT_OF_MEMORY, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::uint32_t options =
      PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->where = where;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options,
                                 &error, &offset, context.get()));
  if (!code->code) {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(where) + ": the expression " + io::quote(pattern) +
                                         " is refused at offset " + std::to_string(offset) + ": " +
                                         error_text(error));
  }
  // Without the JIT (not every machine has one) matching is slower and otherwise the same.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

SplitRegex::~SplitRegex() = default;
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;

struct SplitRegex::Scratch::Parts {
  MatchContext context;
  JitStack stack;
};

SplitRegex::Scratch::Scratch() : parts_(std::make_unique<Parts>()) {
  parts_->context.reset(pcre2_match_context_create(nullptr));
  if (!parts_->context) throw Error(FRT_ERR_OUT_OF_MEMORY, "no memory for matching");
  pcre2_set_match_limit(parts_->context.get(), kMostMatchSteps);
  pcre2_set_heap_limit(parts_->context.get(), kMostMatchKibibytes);
  // Without a stack of its own the JIT uses a small one of the thread's.
  parts_->stack.reset(
      pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{16} << 20, nullptr));
  if (parts_->stack) {
    pcre2_jit_stack_assign(parts_->context.get(), nullptr, parts_->stack.get());
  }
}

SplitRegex::Scratch::~Scratch() = default;

void SplitRegex::split(std::string_view text, Scratch& scratch,
                       const std::function<void(std::string_view)>& visit) const {
  pcre2_match_context* const context = scratch.parts_->context.get();
  const MatchData match(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  if (!match) throw Error(FRT_ERR_OUT_OF_MEMORY, "no memory for matching");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  std::size_t done = 0;  // everything before was visited
  for (std::size_t at = 0; at < text.size();) {
    const int result = pcre2_match(code_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                   match.get(), context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw Error(FRT_ERR_UNSUPPORTED, code_->where + ": matching fails after byte " +
                                           std::to_string(at) + ": " + error_text(result));
    }
    const std::size_t first = found[0], last = found[1];
    if (last <= first) {  // an empty match cuts here; go on after the next character
      if (first > done) visit(text.substr(done, first - done));
      done = first;
      at = first + 1;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u) ++at;
      continue;
    }
    if (first > done) visit(text.substr(done, first - done));
    visit(text.substr(first, last - first));
    done = at = last;
  }
  if (done < text.size()) visit(text.substr(done));
}

}  // namespace frt::models
