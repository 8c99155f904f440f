// SPDX-License-Identifier: Apache-2.0
#include "contract/prompt_table.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/sha256.h"
#include "base/status_macros.h"
#include "parameters/engine_limits.h"
#include "tensor/element.h"

namespace inflight::contract {
namespace {

std::string Hash(std::span<const std::span<const std::byte>> parts) {
  Sha256 hash;
  for (const auto part : parts) hash.Add(part);
  return hash.End();
}

Result<DType> ElementsOf(const Tensor& tensor) {
  switch (tensor.datatype) {
    case DataType::kFp16:
      return DType::kF16;
    case DataType::kBf16:
      return DType::kBF16;
    case DataType::kFp32:
      return DType::kF32;
    default:
      return InvalidArgument(tensor.name, "got " + std::string(DataTypeName(tensor.datatype)) +
                                              ", must be FP16, BF16 or FP32");
  }
}

// [num_rows, hidden_size]
Result<std::span<const int64_t>> ShapeOf(const Tensor& tensor) {
  std::span<const int64_t> shape = tensor.shape;
  if (shape.size() == 3 && shape.front() == 1) shape = shape.subspan(1);
  if (shape.size() == 2 && tensor.num_elements() > 0) return shape;
  std::string text;
  for (const int64_t dim : tensor.shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return InvalidArgument(tensor.name,
                         "got shape [" + text + "], must be [rows, hidden size] of a request");
}

}  // namespace

KnownTable KnownTableOf(std::shared_ptr<const PromptTable> table) {
  const int32_t shape[] = {table->num_rows, table->hidden_size};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(shape)),
                                              std::as_bytes(std::span(table->values))};
  std::string digest = Hash(parts);
  return {.table = std::move(table), .digest = std::move(digest)};
}

Result<KnownTable> ReadPromptTable(const Tensor& tensor, int vocab_size,
                                   std::shared_ptr<AccountShare> memory) {
  ASSIGN_OR_RETURN(const DType dtype, ElementsOf(tensor));
  ASSIGN_OR_RETURN(const auto shape, ShapeOf(tensor));
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t hidden_size = shape[1];
  const int64_t num_rows = vocab_size == 0 ? shape[0] : std::min<int64_t>(shape[0], vocab_size);
  if (vocab_size > shape[0])
    return InvalidArgument("prompt_vocab_size", "got " + std::to_string(vocab_size) + ", " +
                                                    tensor.name + " has " +
                                                    std::to_string(shape[0]) + " rows");
  if (num_rows > kMost || hidden_size > kMost ||
      tensor.data.size() != BytesOf(dtype, tensor.num_elements()))
    return InvalidArgument(tensor.name, "its bytes are not those of its shape");
  const auto num_values = static_cast<size_t>(num_rows * hidden_size);
  MemoryCharge charge(std::move(memory));
  if (const Status charged = charge.Resize(num_values * sizeof(float)); !charged.ok())
    return charged.WithPrefix(tensor.name);
  PromptTable table{.num_rows = static_cast<int>(num_rows),
                    .hidden_size = static_cast<int>(hidden_size),
                    .values = std::vector<float>(num_values)};
  for (size_t i = 0; i < num_values; ++i)
    table.values[i] = LoadFloat(tensor.data.data(), dtype, static_cast<int64_t>(i));
  return KnownTableOf(Charged(std::move(table), std::move(charge)));
}

Result<std::string> PlacePromptTable(const ExecutorLimits& limits, const PromptTuning& tuning,
                                     Request& request) {
  RETURN_IF_ERROR(parameters::CheckPromptTable(limits, request));
  std::vector<TokenId>& ids = request.input_ids;
  const auto is_row = [&](TokenId id) { return id >= limits.vocab_size; };
  size_t num_placed = 0;
  if (request.prompt_table != nullptr && std::ranges::none_of(ids, is_row)) {
    num_placed = static_cast<size_t>(request.prompt_table->num_rows);
    ids.insert(ids.begin(), num_placed, 0);
    std::iota(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(num_placed),
              limits.vocab_size);
  }
  struct Extra {
    uint64_t position, id;
  };
  std::vector<Extra> extras;
  const std::vector<uint64_t>& given = tuning.extra_ids;
  for (size_t i = 0; !given.empty() && i < ids.size(); ++i) {
    const bool is_of_all = given.size() == 1;
    const bool has_own = i >= num_placed && i - num_placed < given.size();
    const uint64_t own = has_own && !is_of_all ? given[i - num_placed] : 0;
    const uint64_t id = is_of_all && is_row(ids[i]) ? given.front() : own;
    if (id != 0) extras.push_back({i, id});
  }
  if (extras.empty()) return tuning.digest;
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(tuning.digest)),
                                              std::as_bytes(std::span(extras))};
  return Hash(parts);
}

}  // namespace inflight::contract
