// SPDX-License-Identifier: Apache-2.0
// Rows of embeddings that a request brings along, for ids that no vocabulary has: prompt tuning
// (arXiv:2104.08691, arXiv:2103.10385), and whatever else is made of vectors in place of tokens.
#pragma once

#include <cstddef>
#include <vector>

namespace inflight {

// Id vocab_size + r of the request's prompt stands for row r. Such ids are never generated, and
// count for no penalty. Rows are rounded to the model's dtype.
struct PromptTable {
  int num_rows = 0;
  int hidden_size = 0;
  std::vector<float> values;  // [num_rows, hidden_size], finite

  const float* Row(int row) const {
    return values.data() + static_cast<size_t>(row) * static_cast<size_t>(hidden_size);
  }
};

}  // namespace inflight
