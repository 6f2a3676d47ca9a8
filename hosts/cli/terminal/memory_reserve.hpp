// SPDX-License-Identifier: Apache-2.0
// memory_reserve.hpp - memory for when there is none. A value of the JSON library allocates while
// it is destroyed; where that fails, the process ends. So some memory is set aside, in two parts.
// The first allocation that fails gives back one part and is tried again: it may be in a
// destructor. The next that fails gives back the other, for unwinding, and throws std::bad_alloc.
#pragma once

namespace frt::host {

// Sets aside what is not; from the first call on a failing allocation gives it back. Called again
// where work goes on after an error. Without memory it does nothing.  [any]
void fill_memory_reserve() noexcept;

}  // namespace frt::host
