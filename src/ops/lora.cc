// SPDX-License-Identifier: Apache-2.0
#include "ops/lora.h"

#include <algorithm>
#include <functional>

namespace inflight::ops {

void LoraBatch::Clear(int num_tokens) {
  rows_.clear();
  runs_.clear();
  tokens_.clear();
  adapters_.clear();
  entries_.assign(static_cast<size_t>(num_tokens), -1);
}

void LoraBatch::Add(const LoraTable* adapter, int first_token, int num_tokens) {
  if (num_tokens > 0) rows_.push_back({adapter, first_token, num_tokens});
}

void LoraBatch::Group() {
  std::ranges::sort(rows_, [](const Row& a, const Row& b) {
    if (a.adapter != b.adapter) return std::less<>()(a.adapter, b.adapter);
    return a.first_token < b.first_token;
  });
  for (const Row& row : rows_) {
    if (runs_.empty() || runs_.back().adapter != row.adapter)
      runs_.push_back({row.adapter, static_cast<int>(tokens_.size()), 0});
    runs_.back().num += row.num_tokens;
    for (int i = 0; i < row.num_tokens; ++i) {
      entries_[static_cast<size_t>(row.first_token + i)] = static_cast<int32_t>(tokens_.size());
      tokens_.push_back(row.first_token + i);
      adapters_.push_back(row.adapter);
    }
  }
}

}  // namespace inflight::ops
