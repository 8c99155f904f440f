// SPDX-License-Identifier: Apache-2.0
#include "bench_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "model/weight_slots.h"

namespace inflight::tool {
namespace {

// Of a weight of the layers' linears, those of experts or the others, with its part of the scales
// and offsets of its group.
double LinearBytes(const model::ModelConfig& config, bool is_of_experts) {
  model::DecoderWeights unused;
  double bytes = 0;
  double num_weights = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    if ((slot.num_experts > 0) != is_of_experts) continue;
    if (slot.is_linear) {
      num_weights += static_cast<double>(slot.shape.num_elements());
      bytes += static_cast<double>(BytesOf(StoredDType(config, slot), slot.shape.num_elements()));
    } else if (slot.shape.rank() == 2 && slot.layer >= 0 && IsOfMatrix(slot)) {
      bytes += static_cast<double>(BytesOf(StoredDType(config, slot), slot.shape.num_elements()));
    }
  }
  return num_weights == 0 ? 0 : bytes / num_weights;
}

// Of the matrix of logits, with its scales and offsets.
double HeadBytes(const model::ModelConfig& config) {
  model::DecoderWeights unused;
  const std::string prefix = std::string(StemOfHead(config)) + ".";
  double bytes = 0;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused))
    if (slot.name == prefix + "weight" || (IsOfMatrix(slot) && slot.name.starts_with(prefix)))
      bytes += static_cast<double>(BytesOf(StoredDType(config, slot), slot.shape.num_elements()));
  return bytes;
}

}  // namespace

ModelCost::ModelCost(const model::ModelConfig& c) {
  const double attention =
      static_cast<double>(c.hidden_size) * c.head_dim * (2 * c.num_heads + 2 * c.num_kv_heads);
  const double mlp =
      static_cast<double>(c.hidden_size) * c.intermediate_size * (c.gated_mlp ? 3 : 2);
  int with_experts = 0;
  for (int i = 0; i < c.num_layers; ++i) with_experts += HasExperts(c, i) ? 1 : 0;
  const double expert =
      3.0 * static_cast<double>(c.hidden_size) * c.expert_intermediate_size * with_experts;
  const double plain_weights = c.num_layers * attention + (c.num_layers - with_experts) * mlp;
  const double shared_weights = expert * c.num_shared_experts;
  const double router =
      with_experts > 0 ? static_cast<double>(c.hidden_size) * RouterRows(c) * with_experts : 0;
  const double head_weights = static_cast<double>(c.hidden_size) * c.vocab_size;
  layer_flops = 2 * (plain_weights + shared_weights + router + expert * c.experts_per_token);
  head_flops = 2 * head_weights;
  const double bytes_of_expert = LinearBytes(c, /*is_of_experts=*/true);
  layer_bytes = plain_weights * LinearBytes(c, /*is_of_experts=*/false) +
                shared_weights * bytes_of_expert + router * static_cast<double>(SizeOf(c.dtype));
  expert_bytes = expert * bytes_of_expert;
  num_experts = c.num_experts;
  experts_per_token = c.experts_per_token;
  head_bytes = HeadBytes(c);
  kv_bytes =
      2.0 * c.num_layers * c.num_kv_heads * c.head_dim * static_cast<double>(SizeOf(KvDType(c)));
  attention_flops = 4.0 * c.num_layers * c.num_heads * c.head_dim;
}

double ModelCost::LayerBytes(double num_tokens) const {
  if (num_experts == 0) return layer_bytes;
  const double spared =
      std::pow(1 - static_cast<double>(experts_per_token) / num_experts, num_tokens);
  return layer_bytes + expert_bytes * num_experts * (1 - spared);
}

std::string Scenario::ToString() const {
  return fmt::format("{}x{}/{}", requests, input_len, output_len);
}

Result<std::vector<Scenario>> ParseScenarios(const std::string& text) {
  std::vector<Scenario> scenarios;
  const auto number = [](std::string_view digits, int& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value >= 1;
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t times = part.find('x');
    const size_t slash = part.find('/');
    Scenario s;
    if (times == std::string_view::npos || slash == std::string_view::npos || slash < times ||
        !number(part.substr(0, times), s.requests) ||
        !number(part.substr(times + 1, slash - times - 1), s.input_len) ||
        !number(part.substr(slash + 1), s.output_len))
      return InvalidArgument(fmt::format(
          "--scenarios: got '{}', needs REQUESTSxINPUT/OUTPUT in tokens, such as 64x1024/256, "
          "separated by commas",
          part));
    scenarios.push_back(s);
    begin = end + 1;
  }
  return scenarios;
}

double LeastPrefillSeconds(const ModelCost& cost, const Rates& rates, const Scenario& s) {
  const double layers = s.input_len * cost.layer_flops / rates.layer_flops;
  const double attention =
      s.input_len * (s.input_len / 2.0) * cost.attention_flops / rates.attention_flops;
  return s.requests * (layers + attention + cost.head_flops / rates.head_flops);
}

double LeastDecodeSeconds(const ModelCost& cost, const Rates& rates, const Scenario& s) {
  const double rows = s.requests;
  const double layers = std::max(cost.LayerBytes(rows) / rates.bytes_per_s,
                                 rows * cost.layer_flops / rates.layer_flops);
  const double head =
      std::max(cost.head_bytes / rates.bytes_per_s, rows * cost.head_flops / rates.head_flops);
  const double context = s.input_len + s.output_len / 2.0;
  const double kv = rows * context * cost.kv_bytes / rates.bytes_per_s;
  return (s.output_len - 1) * (layers + head + kv);
}

}  // namespace inflight::tool
