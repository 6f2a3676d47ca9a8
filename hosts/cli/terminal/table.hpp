// SPDX-License-Identifier: Apache-2.0
// table.hpp - rows of text for people and programs: aligned columns, Markdown, CSV.
#pragma once

#include <string>
#include <vector>

namespace frt::host {

enum class TableFormat { kAligned, kMarkdown, kCsv };

class Table {
 public:
  // `right`: columns that are aligned to the right (numbers), by index.
  explicit Table(std::vector<std::string> header, std::vector<std::size_t> right = {});

  // Adds a row with as many cells as the header. FRT_ERR_INTERNAL otherwise. Cells are made
  // printable: a line feed in a name begins no row.
  void add(std::vector<std::string> row);
  std::size_t rows() const noexcept { return rows_.size(); }

  // The whole table, each line ended by a newline. Widths count characters, not bytes.
  std::string render(TableFormat format) const;

 private:
  std::string render_aligned() const;
  std::string render_markdown() const;
  std::string render_csv() const;
  std::string pad(const std::string& cell, std::size_t column) const;

  std::vector<std::string> header_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

// Whether the headers of aligned tables are bold from now on (stdout shows colours). Not at first.
// Such a table goes out by write_out(), which leaves the colour as it is.
// [setup]
void color_tables(bool on) noexcept;

}  // namespace frt::host
