// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/table.hpp"

#include <frt/error.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <utility>

namespace frt::host {
namespace {

bool bold_headers = false;
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  }));
}

std::string trim_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

void color_tables(bool on) noexcept {
  bold_headers = on;
}

Table::Table(std::vector<std::string> header, std::vector<std::size_t> right)
    : header_(std::move(header)), right_(header_.size(), false) {
  for (const std::size_t column : right) right_.at(column) = true;
  for (std::string& title : header_) {
    title = io::printable(title);
    widths_.push_back(characters(title));
  }
}

void Table::add(std::vector<std::string> row) {
  if (row.size() != header_.size()) {
    throw Error(FRT_ERR_INTERNAL, "a table row has " + std::to_string(row.size()) +
                                      " cells, expected " + std::to_string(header_.size()));
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = io::printable(row[i]);
    widths_[i] = std::max(widths_[i], characters(row[i]));
  }
  rows_.push_back(std::move(row));
}

std::string Table::render(TableFormat format) const {
  switch (format) {
    case TableFormat::kAligned:
      return render_aligned();
    case TableFormat::kMarkdown:
      return render_markdown();
    case TableFormat::kCsv:
      return render_csv();
  }
  return {};
}

std::string Table::pad(const std::string& cell, std::size_t column) const {
  const std::string space(widths_[column] - characters(cell), ' ');
  return right_[column] ? space + cell : cell + space;
}

std::string Table::render_aligned() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string row;
    for (std::size_t i = 0; i < cells.size(); ++i) row += (i == 0 ? "" : "  ") + pad(cells[i], i);
    text += trim_right(std::move(row));
  };
  line(header_);
  if (bold_headers) text = kBold + text.substr(0, text.size() - 1) + kPlain + "\n";
  for (const auto& row : rows_) line(row);
  return text;
}

std::string Table::render_markdown() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += "| " + pad(cells[i], i) + " ";
    text += "|\n";
  };
  line(header_);
  for (std::size_t i = 0; i < header_.size(); ++i) {
    text += "|" + std::string(widths_[i] + 1, '-') + (right_[i] ? ":" : "-");
  }
  text += "|\n";
  for (const auto& row : rows_) line(row);
  return text;
}

std::string Table::render_csv() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + csv_cell(cells[i]);
    text += "\n";
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return text;
}

}  // namespace frt::host
