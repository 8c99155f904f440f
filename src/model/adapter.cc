// SPDX-License-Identifier: Apache-2.0
#include "model/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/status_macros.h"
#include "model/engine.h"
#include "tensor/element.h"

namespace inflight::model {
namespace {

constexpr uint64_t kPartAlignment = 64;

DType DTypeOf(LoraDType dtype) {
  switch (dtype) {
    case LoraDType::kFloat16:
      return DType::kF16;
    case LoraDType::kBFloat16:
      return DType::kBF16;
    case LoraDType::kFloat32:
      break;
  }
  return DType::kF32;
}

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

uint64_t FactorBytes(const ModelConfig& config, int rank, int64_t width) {
  const int64_t elements = rank * ops::LoraStride(width) + ops::kLoraPadding;
  return Aligned(static_cast<uint64_t>(elements) * SizeOf(config.dtype));
}

uint64_t PartBytes(const ModelConfig& config, const LoraPlace& place, int rank) {
  return FactorBytes(config, rank, place.in_features) +
         FactorBytes(config, rank, place.num_features);
}

// All outputs of a site.
int64_t SiteFeatures(const ModelConfig& config, const LoraPlace& place) {
  return place.site == ops::LoraSite::kQkv ? PlaceOf(config, /*module=*/0).num_features
                                           : place.num_features;
}

uint64_t BiasBytes(const ModelConfig& config, const LoraPlace& place) {
  return Aligned(static_cast<uint64_t>(SiteFeatures(config, place)) * sizeof(float));
}

// `part` is a row or a bias.
template <typename... Args>
Status BadPart(std::string_view part, size_t i, fmt::format_string<Args...> format,
               Args&&... args) {
  return InvalidArgument(
      "lora_config",
      fmt::format("{} {}: {}", part, i, fmt::format(format, std::forward<Args>(args)...)));
}
constexpr std::string_view kRow = "row";
constexpr std::string_view kBias = "bias";

bool HasModule(const ModelConfig& config, const LoraLimits& limits, int module) {
  if (module >= kNumLoraModules) return false;
  constexpr int kFirstOfMlp = 5;
  const bool is_gate = module == 7;
  if (config.num_experts > 0 && module >= kFirstOfMlp) return false;
  return (limits.modules >> module & 1U) != 0 && (!is_gate || config.gated_mlp);
}

std::string_view NameOf(int module) { return kLoraModuleNames[static_cast<size_t>(module)]; }

Status CheckPlace(const ModelConfig& config, const LoraLimits& limits, int module, int layer,
                  std::string_view part, size_t i) {
  if (module < 0 || module >= std::ssize(kLoraModuleNames))
    return BadPart(part, i, "got module {}, must be in [0, {})", module, kLoraModuleNames.size());
  if (!HasModule(config, limits, module))
    return BadPart(part, i, "lora module {} not enabled for this model", NameOf(module));
  if (layer < 0 || layer >= config.num_layers)
    return BadPart(part, i, "got layer {}. Expected layerId to be in the range [0, {})", layer,
                   config.num_layers);
  return Status::Ok();
}

Status CheckRow(const ModelConfig& config, const LoraLimits& limits, const LoraTensors& tensors,
                size_t i) {
  const LoraTensors::Row& row = tensors.rows[i];
  RETURN_IF_ERROR(CheckPlace(config, limits, row.module, row.layer, kRow, i));
  if (row.rank <= 0)
    return BadPart(kRow, i, "got rank {}. Expected adapterSize to be > 0", row.rank);
  if (row.rank > limits.max_rank)
    return BadPart(kRow, i, "Invalid low_rank ({}). low_rank must be at most max_lora_rank ({})",
                   row.rank, limits.max_rank);
  const LoraPlace place = PlaceOf(config, row.module);
  const int64_t needed = row.rank * (place.in_features + place.num_features);
  if (tensors.width < needed)
    return InvalidArgument(
        "lora_weights",
        fmt::format("row {}: lora_weights has to few values for {}: got {}, rank {} needs {}", i,
                    NameOf(row.module), tensors.width, row.rank, needed));
  return Status::Ok();
}

// Bytes that the biases take: those of one site and layer are one part.
Result<uint64_t> CheckBiases(const ModelConfig& config, const LoraLimits& limits,
                             const LoraTensors& tensors) {
  std::set<std::tuple<int, int, bool>> seen;
  std::set<std::pair<int, ops::LoraSite>> sites;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.biases.size(); ++i) {
    const LoraTensors::Bias& bias = tensors.biases[i];
    RETURN_IF_ERROR(CheckPlace(config, limits, bias.module, bias.layer, kBias, i));
    const LoraPlace place = PlaceOf(config, bias.module);
    if (std::ssize(bias.values) != place.num_features)
      return BadPart(kBias, i, "got {} values, {} has {} outputs", bias.values.size(),
                     NameOf(bias.module), place.num_features);
    if (!seen.emplace(bias.module, bias.layer, bias.replaces).second)
      return BadPart(kBias, i, "got one of {} of layer {} a second time, one is allowed",
                     NameOf(bias.module), bias.layer);
    if (sites.emplace(bias.layer, place.site).second) bytes += BiasBytes(config, place);
  }
  return bytes;
}

const TensorView& BiasOf(const LayerWeights& layer, ops::LoraSite site) {
  switch (site) {
    case ops::LoraSite::kQkv:
      return layer.qkv_bias;
    case ops::LoraSite::kDense:
      return layer.dense_bias;
    case ops::LoraSite::kFc:
      return layer.fc_bias;
    case ops::LoraSite::kGate:
      return layer.gate_bias;
    case ops::LoraSite::kProj:
      break;
  }
  return layer.proj_bias;
}

bool HasBias(const ModelConfig& config, ops::LoraSite site) {
  switch (site) {
    case ops::LoraSite::kQkv:
      return config.qkv_bias;
    case ops::LoraSite::kDense:
      return config.dense_bias;
    default:
      return config.mlp_bias;
  }
}

Status ReplacesNone(size_t i, int module) {
  return BadPart(kBias, i, "replaces the model's bias of {}, which has none", NameOf(module));
}
Status BiasNotFinite(size_t i) { return BadPart(kBias, i, "got a value that is not finite"); }

// Adds one bias to the sums of its site.
Status AddBias(const LoraPlace& place, const OwnBiases& own, const LoraTensors& tensors, size_t i,
               float* sums) {
  const LoraTensors::Bias& bias = tensors.biases[i];
  const float* replaced = nullptr;
  if (bias.replaces) {
    replaced = own.Of(bias.layer, place.site);
    if (replaced == nullptr) return ReplacesNone(i, bias.module);
    replaced += place.first_feature;
  }
  sums += place.first_feature;
  for (size_t n = 0; n < bias.values.size(); ++n) {
    if (!std::isfinite(bias.values[n])) return BiasNotFinite(i);
    sums[n] += bias.values[n] - (replaced == nullptr ? 0 : replaced[n]);
  }
  return Status::Ok();
}

// Element i of a factor from `source` to `target`; false where it is not finite in both dtypes.
struct ByConversion {
  DType from, to;
  bool operator()(const std::byte* source, int64_t i, std::byte* target, int64_t at) const {
    StoreFloat(target, to, at, LoadFloat(source, from, i));
    return std::isfinite(LoadFloat(target, to, at));
  }
};
// Of two bytes, and of one dtype: its exponent is all ones in what is not finite.
struct AsItIs {
  uint16_t exponent;
  bool operator()(const std::byte* source, int64_t i, std::byte* target, int64_t at) const {
    const auto bits = LoadAs<uint16_t>(source, i);
    StoreAs(target, at, bits);
    return (bits & exponent) != exponent;
  }
};

// Of [rows, width] at element `first` of `source`, rows as they are; or, transposed, columns as
// rows. False where a number is not finite.
template <typename Copy>
bool CopyFactor(const Copy& copy, const std::byte* source, int64_t first, int64_t rows,
                int64_t width, bool transposed, std::byte* target) {
  bool all_finite = true;
  const int64_t stride = ops::LoraStride(transposed ? rows : width);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < width; ++k)
      all_finite &=
          copy(source, first + i * width + k, target, transposed ? k * stride + i : i * stride + k);
  return all_finite;
}

// Both factors of a row of the tensors.
template <typename Copy>
bool CopyFactors(const Copy& copy, const std::byte* source, int64_t first, const LoraPlace& place,
                 int rank, std::byte* a, std::byte* b) {
  const bool a_is_finite =
      CopyFactor(copy, source, first, rank, place.in_features, /*transposed=*/false, a);
  return CopyFactor(copy, source, first + rank * place.in_features, place.num_features, rank,
                    /*transposed=*/true, b) &&
         a_is_finite;
}

bool CopyRow(DType from, DType to, const std::byte* source, int64_t first, const LoraPlace& place,
             int rank, std::byte* a, std::byte* b) {
  if (from != to || SizeOf(from) != sizeof(uint16_t))
    return CopyFactors(ByConversion{from, to}, source, first, place, rank, a, b);
  constexpr uint16_t kF16 = 0x7c00;
  constexpr uint16_t kBF16 = 0x7f80;
  return CopyFactors(AsItIs{from == DType::kF16 ? kF16 : kBF16}, source, first, place, rank, a, b);
}

Status NotFinite(size_t row, DType dtype) {
  return InvalidArgument("lora_weights",
                         fmt::format("row {}: got a value that is not finite in {}, the model's "
                                     "dtype",
                                     row, DTypeName(dtype)));
}

uint64_t NextSerial() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

bool TakesAdapters(const ModelConfig& config) {
  return config.quant_algo != QuantAlgo::kFp8PerChannelPerToken;
}

LoraPlace PlaceOf(const ModelConfig& config, int module) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  switch (module) {
    case 0:
      return {ops::LoraSite::kQkv, hidden, 0, q + 2 * kv};
    case 1:
      return {ops::LoraSite::kQkv, hidden, 0, q};
    case 2:
      return {ops::LoraSite::kQkv, hidden, q, kv};
    case 3:
      return {ops::LoraSite::kQkv, hidden, q + kv, kv};
    case 4:
      return {ops::LoraSite::kDense, q, 0, hidden};
    case 5:
      return {ops::LoraSite::kFc, hidden, 0, inner};
    case 6:
      return {ops::LoraSite::kProj, inner, 0, hidden};
    default:
      return {ops::LoraSite::kGate, hidden, 0, inner};
  }
}

Result<uint64_t> AdapterBytes(const ModelConfig& config, const LoraLimits& limits,
                              const LoraTensors& tensors) {
  if (!TakesAdapters(config))
    return Unimplemented(
               "lora_weights: adapters are not supported beside FP8 weights; open the model with "
               "other weights (quant_algo none)")
        .WithField("lora_weights");
  if (tensors.rows.empty() && config.part.is_whole())
    return InvalidArgument("lora_config", "got no rows, an adapter needs at least one");
  const uint64_t expected =
      tensors.rows.size() * static_cast<uint64_t>(tensors.width) * SizeOf(DTypeOf(tensors.dtype));
  const bool has_width = tensors.width > 0 || tensors.rows.empty();
  if (!has_width || tensors.weights.size() != expected)
    return InvalidArgument("lora_weights", fmt::format("got {} bytes, {} rows of {} values are {}",
                                                       tensors.weights.size(), tensors.rows.size(),
                                                       tensors.width, expected));
  std::set<std::pair<int, int>> seen;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.rows.size(); ++i) {
    RETURN_IF_ERROR(CheckRow(config, limits, tensors, i));
    const LoraTensors::Row& row = tensors.rows[i];
    if (!seen.emplace(row.module, row.layer).second)
      return BadPart(kRow, i, "got module {} of layer {} a second time, one row is allowed",
                     NameOf(row.module), row.layer);
    bytes += PartBytes(config, PlaceOf(config, row.module), row.rank);
  }
  ASSIGN_OR_RETURN(const uint64_t bias_bytes, CheckBiases(config, limits, tensors));
  return bytes + bias_bytes;
}

uint64_t LargestAdapterBytes(const ModelConfig& config, int rank) {
  uint64_t bytes = 0;
  for (int module = 0; module < kNumLoraModules; ++module)
    if (HasModule(config, {}, module)) bytes += PartBytes(config, PlaceOf(config, module), rank);
  return bytes * static_cast<uint64_t>(config.num_layers);
}

Status CheckNumbers(const ModelConfig& config, const LoraTensors& tensors) {
  std::vector<std::byte> unused;
  for (size_t i = 0; i < tensors.rows.size(); ++i) {
    const LoraTensors::Row& row = tensors.rows[i];
    const LoraPlace place = PlaceOf(config, row.module);
    unused.resize(PartBytes(config, place, row.rank));
    if (!CopyRow(DTypeOf(tensors.dtype), config.dtype, tensors.weights.data(),
                 static_cast<int64_t>(i) * tensors.width, place, row.rank, unused.data(),
                 unused.data() + FactorBytes(config, row.rank, place.in_features)))
      return NotFinite(i, config.dtype);
  }
  for (size_t i = 0; i < tensors.biases.size(); ++i) {
    const LoraTensors::Bias& bias = tensors.biases[i];
    if (bias.replaces && !HasBias(config, PlaceOf(config, bias.module).site))
      return ReplacesNone(i, bias.module);
    for (const float value : bias.values)
      if (!std::isfinite(value)) return BiasNotFinite(i);
  }
  return Status::Ok();
}

Result<OwnBiases> OwnBiases::Read(const Engine& engine, Device& device) {
  OwnBiases read;
  for (const LayerWeights& layer : engine.weights.layers) {
    auto& biases = read.biases_.emplace_back();
    for (int site = 0; site < ops::kNumLoraSites; ++site) {
      const TensorView& bias = BiasOf(layer, static_cast<ops::LoraSite>(site));
      const float*& own = biases[static_cast<size_t>(site)] = bias.as<const float>();
      if (own == nullptr || device.kind() == DeviceKind::kCpu) continue;
      std::vector<float>& copy = read.copies_.emplace_back(bias.shape.num_elements());
      RETURN_IF_ERROR(device.Copy(copy.data(), own, bias.num_bytes()));
      own = copy.data();
    }
  }
  return read;
}

Result<Adapter> MakeAdapter(const Engine& engine, const OwnBiases& own, const LoraTensors& tensors,
                            std::byte* target, const std::byte* device) {
  const ModelConfig& config = engine.config;
  Adapter adapter = {.serial = NextSerial(), .table = ops::LoraTable(config.num_layers)};
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.rows.size(); ++i) {
    const LoraTensors::Row& row = tensors.rows[i];
    const LoraPlace place = PlaceOf(config, row.module);
    const int64_t first = static_cast<int64_t>(i) * tensors.width;
    const uint64_t b_offset = offset + FactorBytes(config, row.rank, place.in_features);
    const uint64_t end = b_offset + FactorBytes(config, row.rank, place.num_features);
    std::memset(target + offset, 0, end - offset);
    if (!CopyRow(DTypeOf(tensors.dtype), config.dtype, tensors.weights.data(), first, place,
                 row.rank, target + offset, target + b_offset))
      return NotFinite(i, config.dtype);
    adapter.table.Add(row.layer, place.site,
                      {.a = device + offset,
                       .b = device + b_offset,
                       .dtype = config.dtype,
                       .rank = row.rank,
                       .in_features = place.in_features,
                       .first_feature = place.first_feature,
                       .num_features = place.num_features});
    offset = end;
  }
  std::map<std::pair<int, ops::LoraSite>, uint64_t> offsets;  // of biases
  for (size_t i = 0; i < tensors.biases.size(); ++i) {
    const LoraTensors::Bias& bias = tensors.biases[i];
    const LoraPlace place = PlaceOf(config, bias.module);
    const auto [known, is_new] = offsets.try_emplace({bias.layer, place.site}, offset);
    if (is_new) {
      std::memset(target + offset, 0, BiasBytes(config, place));
      adapter.table.Add(bias.layer, place.site,
                        {.in_features = place.in_features,
                         .num_features = SiteFeatures(config, place),
                         .bias = reinterpret_cast<const float*>(device + offset)});
      offset += BiasBytes(config, place);
    }
    auto* const sums = reinterpret_cast<float*>(target + known->second);
    RETURN_IF_ERROR(AddBias(place, own, tensors, i, sums));
  }
  adapter.num_bytes = offset;
  return adapter;
}

}  // namespace inflight::model
