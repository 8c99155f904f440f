// SPDX-License-Identifier: Apache-2.0
#include "artifact/pickle_stack.h"

#include <fmt/format.h>

#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

using Kind = PickleValue::Kind;

// Far above any state dict: one of 2,000 tensors takes some 40,000 values.
constexpr size_t kMaxValues = size_t{1} << 22;
constexpr size_t kMaxMarks = 1000;

Status Empty() { return InvalidArgument("the stack is empty"); }

}  // namespace

Status PickleStack::Push(PickleValue value) {
  if (pickle_.values.size() == kMaxValues)
    return InvalidArgument(fmt::format("more than {} values", kMaxValues));
  stack_.push_back(static_cast<PickleIdx>(pickle_.values.size()));
  pickle_.values.push_back(std::move(value));
  return Status::Ok();
}

void PickleStack::PushAgain(PickleIdx idx) { stack_.push_back(idx); }

Result<PickleIdx> PickleStack::Pop() {
  if (HeightAboveMark() == 0) return Empty();
  const PickleIdx top = stack_.back();
  stack_.pop_back();
  return top;
}

Result<std::vector<PickleIdx>> PickleStack::PopItems(size_t num_items) {
  if (HeightAboveMark() < num_items) return Empty();
  std::vector<PickleIdx> items(stack_.end() - static_cast<std::ptrdiff_t>(num_items), stack_.end());
  stack_.resize(stack_.size() - num_items);
  return items;
}

Result<PickleIdx> PickleStack::Top(Kind kind) const {
  if (HeightAboveMark() == 0) return Empty();
  const Kind found = pickle_[stack_.back()].kind;
  if (found != kind)
    return Unimplemented(
        fmt::format("of {}, {} is needed", PickleKindName(found), PickleKindName(kind)));
  return stack_.back();
}

Status PickleStack::Mark() {
  if (marks_.size() == kMaxMarks)
    return InvalidArgument(fmt::format("more than {} marks within each other", kMaxMarks));
  marks_.push_back(stack_.size());
  return Status::Ok();
}

Result<std::vector<PickleIdx>> PickleStack::PopToMark() {
  if (marks_.empty()) return InvalidArgument("there is no mark");
  ASSIGN_OR_RETURN(std::vector<PickleIdx> items, PopItems(HeightAboveMark()));
  marks_.pop_back();
  return items;
}

Status PickleStack::Extend(Kind kind, const std::vector<PickleIdx>& items) {
  ASSIGN_OR_RETURN(const PickleIdx container, Top(kind));
  std::vector<PickleIdx>& all = pickle_.values[container].items;
  all.insert(all.end(), items.begin(), items.end());
  return Status::Ok();
}

Status PickleStack::Keep(uint32_t key) {
  if (HeightAboveMark() == 0) return Empty();
  memo_[key] = stack_.back();
  if (memo_.size() > kMaxValues)
    return InvalidArgument(fmt::format("more than {} values are kept", kMaxValues));
  return Status::Ok();
}

Status PickleStack::Recall(uint32_t key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return InvalidArgument(fmt::format("nothing is kept as {}", key));
  PushAgain(found->second);
  return Status::Ok();
}

Result<Pickle> PickleStack::Finish() {
  if (!marks_.empty() || stack_.size() != 1)
    return InvalidArgument(fmt::format("{} values on the stack, one is needed", stack_.size()));
  pickle_.root = stack_.front();
  return std::move(pickle_);
}

}  // namespace inflight::artifact
