// SPDX-License-Identifier: Apache-2.0
// Findings about texts, and "did you mean".
//
// Suggestions use the optimal string alignment distance (Levenshtein plus swapped neighbours), and
// accept at most a third of the word's length, so that a suggestion is a likely one or absent.
// Errors end the reading after kMaxFindings, because a suggestion costs a comparison with every
// name.
#include <frt/core/diagnostic.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <array>

namespace frt::core {

namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u;
}

// Columns of toml positions count characters, so padding walks the line by characters. Tabs stay
// tabs, which keeps the caret under its word whatever the tab width.
std::string padding_to(std::string_view line, uint32_t column) {
  std::string pad;
  uint32_t seen = 1;
  for (std::size_t i = 0; i < line.size() && seen < column; ++i) {
    if (continues(line[i])) continue;
    pad += line[i] == '\t' ? '\t' : ' ';
    ++seen;
  }
  while (seen++ < column) pad += ' ';
  return pad;
}

// Byte offset of character `index` (from 0) of a text, or its size.
std::size_t offset_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (!continues(text[at]) && index-- == 0) break;
  }
  return at;
}

// A line of a manifest may be as long as the manifest: kExcerpt characters of it are shown.
constexpr uint32_t kExcerpt = 160, kExcerptBefore = 60;
constexpr std::string_view kCut = "...";

void set_excerpt(Diagnostic& d, std::string_view line) {
  const auto length = static_cast<uint32_t>(
      line.size() - static_cast<std::size_t>(std::count_if(line.begin(), line.end(), continues)));
  d.source_column = std::clamp<uint32_t>(d.position.column, 1, length + 1);
  d.source_line = line;
  if (length <= kExcerpt) return;
  const uint32_t first = std::min(
      d.source_column > kExcerptBefore ? d.source_column - kExcerptBefore : 0, length - kExcerpt);
  const std::string_view rest = line.substr(offset_of(line, first));
  const std::string_view shown = rest.substr(0, offset_of(rest, kExcerpt));
  d.source_column -= first;
  d.source_line = shown;
  if (first > 0) {
    d.source_line.insert(0, kCut);
    d.source_column += static_cast<uint32_t>(kCut.size());
  }
  if (shown.size() < rest.size()) d.source_line += kCut;
}

// A message quotes the text, which may be one long word, or hold line feeds: no line of it begins
// where a finding does.
std::string shortened(const std::string& text) {
  constexpr std::size_t kLongest = 2000;
  std::size_t end = std::min(text.size(), kLongest);
  while (end < text.size() && continues(text[end])) --end;
  std::string part;
  for (const char c : text.substr(0, end)) {
    part += c;
    if (c == '\n') part += "  ";
  }
  return end < text.size() ? part.append(kCut) : part;
}

std::size_t distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.resize(width);
  for (std::size_t j = 0; j < width; ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& now = rows[i % 3];
    const auto& before = rows[(i + 2) % 3];
    const auto& earlier = rows[(i + 1) % 3];
    now[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({before[j] + 1, now[j - 1] + 1, before[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], earlier[j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][width - 1];
}

bool before(const Diagnostic& a, const Diagnostic& b) {
  const auto key = [](const Diagnostic& d) {
    // Findings without a position come last.
    return std::pair(d.position.known() ? d.position.line : UINT32_MAX, d.position.column);
  };
  return key(a) < key(b);
}

std::string render_all(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!text.empty()) text += "\n\n";
    text += render(diagnostic);
  }
  return text;
}

frt_status common_code(const std::vector<Diagnostic>& diagnostics) {
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.code != diagnostics.front().code) return FRT_ERR_INVALID_ARGUMENT;
  }
  return diagnostics.empty() ? FRT_ERR_INTERNAL : diagnostics.front().code;
}

}  // namespace

SourceText::SourceText(std::string name, std::string_view text) : name_(std::move(name)) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines_.emplace_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::string_view SourceText::line(uint32_t number) const noexcept {
  return number >= 1 && number <= lines_.size() ? std::string_view(lines_[number - 1])
                                                : std::string_view();
}

std::string SourceText::describe(const SourcePosition& position) const {
  if (!position.known()) return name_;
  return name_ + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

std::string render(const Diagnostic& d) {
  std::string text = d.severity == Severity::kError ? "error: " : "warning: ";
  text += shortened(d.message);
  std::string gutter;
  if (!d.file.empty() && d.position.known()) {
    const std::string number = std::to_string(d.position.line);
    gutter.assign(number.size(), ' ');
    text += "\n" + gutter + "--> " + io::printable(d.file) + ":" + number + ":" +
            std::to_string(d.position.column);
    text += "\n" + gutter + " |\n" + number + " | " + d.source_line + "\n" + gutter + " | " +
            padding_to(d.source_line, d.source_column) +
            std::string(std::clamp<uint32_t>(d.position.length, 1, kExcerpt - kExcerptBefore), '^');
    if (!d.hint.empty()) text += " " + shortened(d.hint);
  } else {
    if (!d.file.empty()) text += "\n--> " + io::printable(d.file);
    if (!d.hint.empty()) text += "\n= " + shortened(d.hint);
  }
  for (const std::string& note : d.notes) {
    text += "\n" + gutter + (gutter.empty() ? "= " : " = ") + shortened(note);
  }
  return text;
}

DiagnosticError::DiagnosticError(std::vector<Diagnostic> diagnostics)
    : Error(common_code(diagnostics), render_all(diagnostics)),
      diagnostics_(std::move(diagnostics)) {}

bool DiagnosticError::only_refused_plugins() const noexcept {
  return std::all_of(diagnostics_.begin(), diagnostics_.end(),
                     [](const Diagnostic& d) { return d.plugin_refused; });
}

Diagnostic& Diagnostics::add(Severity severity, frt_status code, const SourcePosition& position,
                             std::string message) {
  Diagnostic d;
  d.severity = severity;
  d.code = code;
  d.message = std::move(message);
  if (text_ && position.known()) {
    d.file = text_->name();
    d.position = position;
    set_excerpt(d, text_->line(position.line));
  }
  return all_.emplace_back(std::move(d));
}

Diagnostic& Diagnostics::error(frt_status code, const SourcePosition& position,
                               std::string message) {
  if (errors_ == kMaxFindings) {
    const bool refused = all_.back().plugin_refused;
    add(Severity::kError, code, {},
        "more than " + std::to_string(kMaxFindings) + " errors: the rest of the text was not read")
        .plugin_refused = refused;
    throw_if_errors();
  }
  ++errors_;
  return add(Severity::kError, code, position, std::move(message));
}

Diagnostic& Diagnostics::warning(const SourcePosition& position, std::string message) {
  if (warnings_ > kMaxFindings) return left_out_;
  if (++warnings_ > kMaxFindings) {
    add(Severity::kWarning, FRT_OK, {},
        "more than " + std::to_string(kMaxFindings) + " warnings: the rest is left out");
    return left_out_;
  }
  return add(Severity::kWarning, FRT_OK, position, std::move(message));
}

bool Diagnostics::has_errors() const noexcept {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Diagnostic& d) { return d.severity == Severity::kError; });
}

std::vector<Diagnostic> Diagnostics::warnings() const {
  std::vector<Diagnostic> found;
  for (const Diagnostic& d : all_) {
    if (d.severity == Severity::kWarning) found.push_back(d);
  }
  std::stable_sort(found.begin(), found.end(), before);
  return found;
}

void Diagnostics::throw_if_errors() const {
  std::vector<Diagnostic> errors;
  for (const Diagnostic& d : all_) {
    if (d.severity == Severity::kError) errors.push_back(d);
  }
  if (errors.empty()) return;
  std::stable_sort(errors.begin(), errors.end(), before);
  throw DiagnosticError(std::move(errors));
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  // Long words cost quadratic time and are never a slip of the finger.
  if (word.empty() || word.size() > 64) return {};
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 64) continue;
    const std::size_t d = distance(word, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = closest(word, candidates);
  return best.empty() ? std::string() : "did you mean `" + best + "`?";
}

}  // namespace frt::core
