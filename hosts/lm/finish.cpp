// SPDX-License-Identifier: Apache-2.0
#include "lm/finish.hpp"

namespace frt::host {

const char* finish_name(Finish finish) noexcept {
  switch (finish) {
    case Finish::kLength:
      return "length";
    case Finish::kStop:
      return "stop";
    case Finish::kContext:
      return "context";
    case Finish::kCancelled:
      return "cancelled";
    case Finish::kDeadline:
      return "deadline";
  }
  return "?";
}

}  // namespace frt::host
