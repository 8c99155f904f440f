// SPDX-License-Identifier: Apache-2.0
// The machine that a pickle's opcodes work on: values, the stack of their indices with its marks,
// and the memo. Errors say what an opcode lacked; the caller knows which one it was.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "artifact/pickle.h"

namespace inflight::artifact {

class PickleStack {
 public:
  const PickleValue& operator[](PickleIdx idx) const { return pickle_.values[idx]; }

  Status Push(PickleValue value);
  Status PushItems(PickleValue::Kind kind, std::vector<PickleIdx> items) {
    return Push({.kind = kind, .items = std::move(items)});
  }
  void PushAgain(PickleIdx idx);  // a value that there is already

  // Values above the last mark only.
  Result<PickleIdx> Pop();
  Result<std::vector<PickleIdx>> PopItems(size_t num_items);
  Result<PickleIdx> Top(PickleValue::Kind kind) const;  // kUnimplemented if it is of another kind

  Status Mark();
  Result<std::vector<PickleIdx>> PopToMark();

  // Appends to the container that is on top then.
  Status Extend(PickleValue::Kind kind, const std::vector<PickleIdx>& items);

  // The memo: keeps what is on top as `key`, and pushes what was kept.
  Status Keep(uint32_t key);
  Status Recall(uint32_t key);
  uint32_t num_kept() const { return static_cast<uint32_t>(memo_.size()); }

  // The one value that is left, and all that it refers to. Nothing may be called afterwards.
  Result<Pickle> Finish();

 private:
  size_t HeightAboveMark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Pickle pickle_;
  std::vector<PickleIdx> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint32_t, PickleIdx> memo_;
};

}  // namespace inflight::artifact
