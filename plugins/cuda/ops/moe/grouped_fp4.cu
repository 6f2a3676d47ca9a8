// SPDX-License-Identifier: Apache-2.0
// The grouped product of one weight format (grouped_mma.cuh).
#include "grouped_mma.cuh"

namespace frt::cuda {

void launch_mma_fp4(Stream& stream, const MoeProduct& product, int tile_rows, bool gated) {
  launch_mma_format<MoeFormat::kFp4>(stream, product, tile_rows, gated);
}

}  // namespace frt::cuda
