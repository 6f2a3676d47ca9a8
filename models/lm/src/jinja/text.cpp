// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <frt/io/utf8.hpp>
#include <frt/lm/chat_options.hpp>

namespace frt::lm::jinja {
namespace {

// The character that ends `text`, which is not empty.
std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return text.substr(begin);
}

bool has_character(std::string_view set, std::string_view character) {
  return set.find(character) != set.npos;
}

bool cased(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool is_class(char32_t code, CharacterClass which) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  switch (which) {
    case CharacterClass::kAlpha:
      return letter;
    case CharacterClass::kDigit:
      return category == UTF8PROC_CATEGORY_ND;
    case CharacterClass::kAlnum:
      return letter || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    case CharacterClass::kLower:
      return category == UTF8PROC_CATEGORY_LL;
    case CharacterClass::kUpper:
      return category == UTF8PROC_CATEGORY_LU;
    default:
      return false;
  }
}

class Splitter {
 public:
  Splitter(Meter& meter, const PromptText& text) : meter_(meter), text_(text) {}
  void add(std::string_view part) { parts_.push_back(make_text(meter_, cut(meter_, text_, part))); }
  std::vector<Value> done(bool reversed = false) {
    if (reversed) std::reverse(parts_.begin(), parts_.end());
    return std::move(parts_);
  }

 private:
  Meter& meter_;
  const PromptText& text_;
  std::vector<Value> parts_;
};

}  // namespace

char32_t code_point(std::string_view character) {
  utf8proc_int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(character.data()),
                   static_cast<utf8proc_ssize_t>(character.size()), &code);
  return static_cast<char32_t>(code);
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::vector<Value> characters(Meter& meter, const PromptText& text) {
  std::vector<Value> all;
  for_runs(text, [&](std::string_view run, bool outside) {
    while (!run.empty()) {
      const std::size_t bytes = character_bytes(run[0]);
      PromptText one;
      put(one, run.substr(0, bytes), outside);
      meter.work(1);
      all.push_back(make_text(meter, std::move(one)));
      run.remove_prefix(bytes);
    }
  });
  return all;
}

PromptText cut(Meter& meter, const PromptText& text, std::size_t begin, std::size_t end) {
  meter.copy(end - begin + 16 * text.plain().size());
  return text.slice(begin, end);
}

PromptText cut(Meter& meter, const PromptText& text, std::string_view part) {
  const auto begin = static_cast<std::size_t>(part.data() - text.text().data());
  return cut(meter, text, begin, begin + part.size());
}

PromptText strip_text(Meter& meter, const PromptText& text, Side side,
                      const std::string_view* set) {
  std::string_view rest = text.text();
  meter.copy(rest.size());
  if (set) {
    if (side != Side::kRight) {
      while (!rest.empty() && has_character(*set, rest.substr(0, character_bytes(rest[0])))) {
        meter.work(1 + set->size() / 64);
        rest.remove_prefix(character_bytes(rest[0]));
      }
    }
    if (side != Side::kLeft) {
      while (!rest.empty() && has_character(*set, last_character(rest))) {
        meter.work(1 + set->size() / 64);
        rest.remove_suffix(last_character(rest).size());
      }
    }
  } else {
    if (side != Side::kRight) rest = strip_left(rest);
    if (side != Side::kLeft) rest = strip_right(rest);
  }
  return cut(meter, text, rest);
}

std::vector<Value> split_text(Meter& meter, const PromptText& text,
                              const std::string_view* separator, std::int64_t most,
                              bool from_right) {
  Splitter parts(meter, text);
  std::string_view rest = text.text();
  meter.copy(rest.size());
  if (separator) {
    if (separator->empty()) fail("the separator of split is empty");
    meter.search(rest.size(), separator->size());
    for (; most != 0; --most) {
      const std::size_t at = from_right ? rest.rfind(*separator) : rest.find(*separator);
      if (at == rest.npos) break;
      parts.add(from_right ? rest.substr(at + separator->size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + separator->size());
    }
    parts.add(rest);
    return parts.done(from_right);
  }
  const auto trimmed = [&](std::string_view of) {
    return from_right ? strip_right(of) : strip_left(of);
  };
  for (rest = trimmed(rest); !rest.empty() && most != 0; --most) {
    std::string_view left = rest;  // behind the word
    const auto at_space = [&] {
      return leading_space(from_right ? last_character(left) : left) != 0;
    };
    while (!left.empty() && !at_space()) {
      from_right ? left.remove_suffix(last_character(left).size())
                 : left.remove_prefix(character_bytes(left[0]));
    }
    parts.add(from_right ? rest.substr(left.size()) : rest.substr(0, rest.size() - left.size()));
    rest = trimmed(left);
  }
  // What is over keeps its inner space, but not that at its far end.
  if (!rest.empty()) parts.add(rest);
  return parts.done(from_right);
}

std::vector<Value> split_lines(Meter& meter, const PromptText& text, bool keep_ends) {
  static constexpr std::string_view kEnds[] = {"\r\n", "\n",   "\r",     "\v",     "\f",    "\x1c",
                                               "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"};
  Splitter parts(meter, text);
  const std::string_view all = text.text();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t end = 0;
    for (const std::string_view each : kEnds) {
      if (end == 0 && all.substr(at, each.size()) == each) end = each.size();
    }
    if (end == 0) {
      at += character_bytes(all[at]);
      continue;
    }
    parts.add(all.substr(begin, at - begin + (keep_ends ? end : 0)));
    begin = at += end;
  }
  meter.copy(all.size() * 16);
  if (begin < all.size()) parts.add(all.substr(begin));
  return parts.done();
}

PromptText replace_text(Meter& meter, const PromptText& text, std::string_view from,
                        const PromptText& to, std::int64_t most) {
  const std::string_view all = text.text();
  meter.search(all.size(), from.size());
  std::vector<std::size_t> found;
  std::size_t last = 0;
  while (most != 0) {
    // An empty text is found before each character and at the end.
    const std::size_t at = last > all.size() ? all.npos : all.find(from, last);
    if (at == all.npos) break;
    found.push_back(at);
    last = at + (!from.empty() ? from.size() : at < all.size() ? character_bytes(all[at]) : 1);
    meter.work(1);
    --most;
  }
  if (to.text().size() > kMostOutput || found.size() > kMostOutput / (to.text().size() + 1)) {
    fail("replace makes a text of more than " + std::to_string(kMostOutput >> 20) + " MiB",
         FRT_ERR_UNSUPPORTED);
  }
  meter.copy(found.size() * (to.text().size() + 16 * to.plain().size()));
  // Runs and occurrences are both in order: one pass.
  PromptText out;
  std::size_t next = 0, at = 0;
  const auto insert_before = [&](std::size_t limit) {
    return next < found.size() && found[next] < limit;
  };
  for_runs(text, [&](std::string_view run, bool outside) {
    const auto begin = static_cast<std::size_t>(run.data() - all.data());
    const std::size_t end = begin + run.size();
    at = std::max(at, begin);
    while (insert_before(end)) {
      if (at < found[next]) put(out, all.substr(at, found[next] - at), outside);
      out.append(to);
      at = found[next++] + from.size();
    }
    if (at < end) put(out, all.substr(at, end - at), outside);
  });
  while (next < found.size()) out.append(to), ++next;
  return out;
}

PromptText change_case(Meter& meter, const PromptText& text, Case to) {
  meter.copy(text.text().size() * 16);
  PromptText out;
  bool after_cased = false, first = true;
  for_runs(text, [&](std::string_view run, bool outside) {
    std::string changed;
    while (!run.empty()) {
      const std::string_view one = run.substr(0, character_bytes(run[0]));
      const char32_t code = code_point(one);
      const bool upper = to == Case::kUpper || (to == Case::kTitle && !after_cased) ||
                         (to == Case::kCapitalise && first);
      const auto from = static_cast<utf8proc_int32_t>(code);
      io::append_utf8(changed, static_cast<char32_t>(to == Case::kUpper ? utf8proc_toupper(from)
                                                     : upper            ? utf8proc_totitle(from)
                                                                        : utf8proc_tolower(from)));
      after_cased = cased(code);
      first = false;
      run.remove_prefix(one.size());
    }
    put(out, changed, outside);
  });
  return out;
}

bool is_all(Meter& meter, std::string_view text, CharacterClass which) {
  meter.copy(text.size() * 16);
  const bool case_only = which == CharacterClass::kLower || which == CharacterClass::kUpper;
  bool any = false;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, character_bytes(text[0]));
    const char32_t code = code_point(one);
    const bool fits =
        which == CharacterClass::kSpace ? leading_space(one) != 0 : is_class(code, which);
    if (!fits && (!case_only || cased(code))) return false;
    any = any || fits;
    text.remove_prefix(one.size());
  }
  return any;
}

}  // namespace frt::lm::jinja
