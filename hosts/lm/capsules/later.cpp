// SPDX-License-Identifier: Apache-2.0
// What a driver asks for that others need meanwhile: the worker does it, the end comes with a later
// tend(). While a file is on its way out its entry is busy and leaving, so nobody finds it and
// nobody begins to read it.
#include <memory>
#include <utility>

#include "lm/capsules/registry.hpp"

namespace frt::host {
namespace {

bool is_missing(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.status() == FRT_ERR_NOT_FOUND;
  } catch (...) {
    return false;
  }
}

}  // namespace

void CapsuleRegistry::save_later(uint32_t slot, CapsuleContent content, const Stream& stream,
                                 BackgroundWorker::End end) {
  require_name(content.name, false);
  name_content(content);
  struct Saving {
    CapsuleContent content;
    Capsule capsule;
    IndexRow row{};
  };
  // The driver lets go of it last: a capsule is released on its thread.
  Capsule kept = snapshot_for_file(slot, content.boundary(), stream);
  const auto saving = std::make_shared<Saving>(Saving{std::move(content), std::move(kept)});
  const auto write = [this, saving] {
    const std::string& name = saving->content.name;
    index_->hold(name);
    const std::string text = content_to_text(saving->content);
    content_from_text(text);  // what cannot be read again is not saved
    saving->capsule.save(options_.folder, name, text);
    saving->row = index_->refresh(name);
  };
  post(saving->content.name, write,
       [this, saving, end = std::move(end)](std::exception_ptr failure) {
         const IndexRow& row = saving->row;
         const std::string name = saving->content.name;
         if (!failure && (row.name.empty() || !row.problem.empty() || entries_.contains(name))) {
           failure = std::make_exception_ptr(
               Error(FRT_ERR_IO,
                     "capsule '" + name + "' was written, but cannot be used: " + row.problem));
         }
         if (!failure) {
           adopt_row(row);
           Entry& entry = at(name);
           const bool on_host = saving->capsule.space() == FRT_SPACE_HOST_PINNED;
           (on_host ? entry.host : entry.device) = std::move(saving->capsule);
           entry.content = std::make_shared<const CapsuleContent>(std::move(saving->content));
           refresh_view(entry);
         }
         end(failure);
       });
}

void CapsuleRegistry::pin_later(const std::string& name, bool pinned, BackgroundWorker::End end) {
  Entry& entry = at(name);
  if (!entry.file) {
    entry.view.pinned = pinned;
    return end(nullptr);
  }
  post(
      name, [this, name, pinned] { index_->pin(name, pinned); },
      [this, name, pinned, end = std::move(end)](const std::exception_ptr& failure) {
        const auto found = entries_.find(name);
        if (!failure && found != entries_.end()) found->second.view.pinned = pinned;
        end(failure);
      });
}

void CapsuleRegistry::remove_later(const std::string& name, BackgroundWorker::End end) {
  Entry& entry = at(name);
  if (entry.busy || entry.arriving || entry.leaving) {
    throw Error(FRT_ERR_NOT_READY, "capsule '" + name + "' is being moved; try again");
  }
  if (!entry.file) {
    forget(name);
    return end(nullptr);
  }
  entry.device.reset();
  entry.host.reset();
  refresh_view(entry);
  entry.leaving = true;
  entry.busy = post(
      name, [this, name] { index_->remove(name); },
      [this, name, end = std::move(end)](const std::exception_ptr& failure) {
        Entry& left = at(name);
        left.busy.reset();
        left.leaving = false;
        if (failure && !is_missing(failure)) {
          left_memory(left);
          return end(failure);
        }
        forget(name);
        end(nullptr);
      });
}

void CapsuleRegistry::adopt_later(const std::string& name, BackgroundWorker::End end) {
  require_folder();
  const auto row = std::make_shared<IndexRow>();
  post(
      name, [this, name, row] { *row = index_->refresh(name); },
      [this, name, row, end = std::move(end)](std::exception_ptr failure) {
        if (!failure && row->name.empty()) {
          failure = std::make_exception_ptr(
              Error(FRT_ERR_NOT_FOUND, "there is no file of a capsule '" + name + "'"));
        } else if (!failure && !row->problem.empty()) {
          failure = std::make_exception_ptr(Error(FRT_ERR_FORMAT, row->problem));
        } else if (!failure && !entries_.contains(name)) {
          adopt_row(*row);
        }
        end(failure);
      });
}

}  // namespace frt::host
