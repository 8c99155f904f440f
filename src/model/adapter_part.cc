// SPDX-License-Identifier: Apache-2.0
#include "model/adapter_part.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/adapter.h"
#include "tensor/dtype.h"

namespace inflight::model {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

// Of a module: columns of A, and rows of B in the order in which the rank has them.
struct Cut {
  Range columns;
  std::vector<Range> rows;
};

Cut CutOf(const ModelConfig& rank, const ModelConfig& whole, int module) {
  const RankPart& part = rank.part;
  const LoraPlace place = PlaceOf(whole, module);
  const int64_t head = rank.head_dim;
  const int64_t q = rank.num_heads * head;
  const Range queries = {part.tp_rank * q, q};
  const Range kv = {FirstKvHead(whole.num_kv_heads, part.tp_size, part.tp_rank) * head,
                    rank.num_kv_heads * head};
  const int64_t keys = whole.num_heads * head;
  const int64_t values = keys + whole.num_kv_heads * head;
  const Range inner = {int64_t{part.tp_rank} * rank.intermediate_size, rank.intermediate_size};
  const Range all_columns = {0, place.in_features};
  const Range all_rows = {0, place.num_features};
  switch (place.site) {
    case ops::LoraSite::kQkv:
      if (module == 0)
        return {all_columns, {queries, {keys + kv.begin, kv.count}, {values + kv.begin, kv.count}}};
      return {all_columns, {place.first_feature == 0 ? queries : kv}};
    case ops::LoraSite::kDense:
      return {queries, {all_rows}};
    case ops::LoraSite::kProj:
      return {inner, {all_rows}};
    case ops::LoraSite::kFc:
    case ops::LoraSite::kGate:
      break;
  }
  return {all_columns, {inner}};
}

int64_t NumRows(const Cut& cut) {
  int64_t count = 0;
  for (const Range& range : cut.rows) count += range.count;
  return count;
}

// Of a stage's ranks the first one adds the biases of what is added up.
bool IsAddedUp(ops::LoraSite site) {
  return site == ops::LoraSite::kDense || site == ops::LoraSite::kProj;
}

// A [rank, in] and then B [out, rank] of a row, its elements of `size` bytes.
void CopyRow(const std::byte* from, int64_t in_features, int low_rank, const Cut& cut, size_t size,
             std::byte* to) {
  const auto copy = [&](int64_t first, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * size;
    std::memcpy(to, from + static_cast<size_t>(first) * size, bytes);
    to += bytes;
  };
  for (int i = 0; i < low_rank; ++i) copy(i * in_features + cut.columns.begin, cut.columns.count);
  for (const Range& range : cut.rows)
    copy(low_rank * in_features + range.begin * low_rank, range.count * low_rank);
}

}  // namespace

ModelConfig WholeConfig(const ModelConfig& rank) {
  ModelConfig whole = rank;
  const RankPart& part = rank.part;
  if (part.is_whole()) return whole;
  whole.num_layers = part.num_layers;
  whole.num_heads *= part.tp_size;
  whole.num_kv_heads = part.num_kv_heads;
  whole.intermediate_size *= part.tp_size;
  whole.part = {};
  return whole;
}

LoraTensors TakePart(const ModelConfig& rank, const LoraTensors& tensors) {
  const ModelConfig whole = WholeConfig(rank);
  const size_t size = tensors.dtype == LoraDType::kFloat32 ? sizeof(float) : sizeof(uint16_t);
  const auto is_here = [&](int layer) {
    return layer >= rank.part.first_layer && layer < rank.part.first_layer + rank.num_layers;
  };
  LoraTensors out = {.dtype = tensors.dtype};
  for (const LoraTensors::Row& row : tensors.rows) {
    if (!is_here(row.layer)) continue;
    const Cut cut = CutOf(rank, whole, row.module);
    out.width = std::max(out.width, row.rank * (cut.columns.count + NumRows(cut)));
    out.rows.push_back(row);
    out.rows.back().layer -= rank.part.first_layer;
  }
  out.weights.resize(out.rows.size() * static_cast<size_t>(out.width) * size);
  size_t next = 0;
  for (size_t i = 0; i < tensors.rows.size(); ++i) {
    const LoraTensors::Row& row = tensors.rows[i];
    if (!is_here(row.layer)) continue;
    CopyRow(tensors.weights.data() + i * static_cast<size_t>(tensors.width) * size,
            PlaceOf(whole, row.module).in_features, row.rank, CutOf(rank, whole, row.module), size,
            out.weights.data() + next++ * static_cast<size_t>(out.width) * size);
  }
  for (const LoraTensors::Bias& bias : tensors.biases) {
    const bool is_others = rank.part.tp_rank > 0 && IsAddedUp(PlaceOf(whole, bias.module).site);
    if (!is_here(bias.layer) || is_others) continue;
    LoraTensors::Bias& own = out.biases.emplace_back();
    own = {.module = bias.module,
           .layer = bias.layer - rank.part.first_layer,
           .replaces = bias.replaces,
           .values = {}};
    for (const Range& range : CutOf(rank, whole, bias.module).rows)
      own.values.insert(own.values.end(), bias.values.begin() + range.begin,
                        bias.values.begin() + range.begin + range.count);
  }
  return out;
}

}  // namespace inflight::model
