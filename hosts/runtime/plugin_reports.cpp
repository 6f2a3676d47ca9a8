// SPDX-License-Identifier: Apache-2.0
// A callback is called by a plugin, so nothing may leave it: what it cannot read is kept and
// thrown when the plugin's function has returned.
#include "runtime/plugin_reports.hpp"

#include <exception>
#include <frt/contracts.hpp>
#include <frt/role/contracts.hpp>
#include <frt/text.hpp>

namespace frt::host {
namespace {

// More than any report has.
constexpr std::size_t kMostEntries = 1u << 20;

template <class Entry>
struct Report {
  const std::string& sender;
  std::function<void()> progressed{};
  std::vector<Entry> entries{};
  std::exception_ptr failure{};

  // Adds what `read` returns.
  template <class Read>
  frt_status add(Read&& read) noexcept {
    if (failure) return FRT_ERR_CALLBACK;
    try {
      if (entries.size() == kMostEntries) {
        throw Error(FRT_ERR_FORMAT,
                    sender + ": it reports more than " + std::to_string(kMostEntries) + " entries");
      }
      entries.push_back(read());
      if (progressed) progressed();
      return FRT_OK;
    } catch (...) {
      failure = std::current_exception();
      return FRT_ERR_CALLBACK;
    }
  }
  // After the plugin's function returned `status`.
  std::vector<Entry> result(frt_status status, const frt_error& error, const std::string& what) {
    if (failure) std::rethrow_exception(failure);
    check(status, error, what);
    return std::move(entries);
  }
};

frt_status take_row(void* user, const frt_selftest_row* given) noexcept {
  auto& report = *static_cast<Report<SelftestRow>*>(user);
  return report.add([&]() -> SelftestRow {
    auto row = read_table<frt_selftest_row>(given, report.sender);
    const std::string what = report.sender + ": a row of its self-test: its ";
    SelftestRow kept;
    kept.tensor = checked_text(row.tensor, what + "tensor");
    kept.gate = checked_text(row.gate, what + "gate");
    row.tensor = row.gate = nullptr;  // valid during the call alone
    kept.figures = row;
    return kept;
  });
}

void take_fact(void* self, const char* subject, const char* fact, const char* advice) noexcept {
  auto& report = *static_cast<Report<SurveyedFact>*>(self);
  report.add([&]() -> SurveyedFact {
    const std::string what = report.sender + ": what it reports of a device: its ";
    return {std::string(checked_text(subject, what + "subject")),
            std::string(checked_text(fact, what + "fact")),
            std::string(checked_text(advice, what + "advice"))};
  });
}

}  // namespace

std::vector<SelftestRow> run_selftest(const frt_selftest_v1& table, frt_model model,
                                      const std::string& goldens, const std::string& sender,
                                      const std::function<void()>& progressed) {
  Report<SelftestRow> report{sender, progressed};
  frt_error error{};
  const frt_status status = contain(
      sender, "run", [&] { return table.run(model, goldens.c_str(), take_row, &report, &error); });
  auto rows = report.result(status, error, sender + ": goldens " + goldens);
  for (SelftestRow& row : rows) row.goldens = goldens;
  return rows;
}

std::vector<SurveyedFact> device_facts(const frt_device_status_v1& table, frt_plugin plugin,
                                       uint32_t ordinal, const std::string& sender) {
  if (!table.report) return {};
  Report<SurveyedFact> report{sender};
  frt_error error{};
  const frt_status status = contain(
      sender, "report", [&] { return table.report(plugin, ordinal, &report, take_fact, &error); });
  return report.result(status, error, sender);
}

}  // namespace frt::host
