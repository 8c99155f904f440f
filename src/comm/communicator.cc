// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <algorithm>

#include "base/status_macros.h"

namespace inflight::comm {

Status Communicator::GatherColumns(const TensorView& own, const TensorView& all, Stream& stream) {
  if (rank() != 0) return Send(own, 0, stream);
  const int64_t width = own.shape[1];
  const int64_t row_width = all.shape[1];
  for (int r = 0; r < size(); ++r) {
    if (r > 0) RETURN_IF_ERROR(Receive(own, r, stream));
    const int64_t first = r * width;
    const int64_t num_columns = std::min(width, row_width - first);
    if (num_columns <= 0) continue;  // padding alone
    stream.cpu_pool().ParallelFor(own.shape[0], [&](int64_t row) {
      std::copy_n(own.as<const float>() + row * width, num_columns,
                  all.as<float>() + row * row_width + first);
    });
  }
  return Status::Ok();
}

}  // namespace inflight::comm
