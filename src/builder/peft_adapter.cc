// SPDX-License-Identifier: Apache-2.0
#include "builder/peft_adapter.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/json_file.h"
#include "artifact/tensor_set.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "model/adapter.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kSafetensors = "adapter_model.safetensors";
constexpr const char* kTorch = "adapter_model.bin";
constexpr int64_t kMaxAlpha = 1 << 20;

// Names of the linears of a layer in the families' Hugging Face models -> module ids.
struct Linear {
  std::string_view name;
  int module;
};
constexpr auto kLinears = std::to_array<Linear>({
    {"self_attn.q_proj", 1},
    {"self_attn.k_proj", 2},
    {"self_attn.v_proj", 3},
    {"self_attn.o_proj", 4},
    {"mlp.gate_proj", 5},
    {"mlp.down_proj", 6},
    {"mlp.up_proj", 7},
    {"attn.c_attn", 0},
    {"attn.c_proj", 4},
    {"mlp.c_fc", 5},
    {"mlp.c_proj", 6},
});

enum class Kind : uint8_t { kA, kB, kBiasOfB, kBias };

// What a weight file's tensor is: one factor of a linear, or a bias.
struct Key {
  std::string module_name;  // "model.layers.0.self_attn.q_proj"
  int layer = 0;
  int module = 0;
  Kind kind = Kind::kA;
};

struct Settings {
  double alpha = 0;
  bool use_rslora = false;
  bool has_biases = false;                                    // of the model
  bool has_biases_of_b = false;                               // `lora_bias`
  std::vector<std::pair<std::string, double>> alpha_pattern;  // in the file's order

  double ScaleOf(const std::string& module_name, int rank) const {
    double value = alpha;
    for (const auto& [name, own] : alpha_pattern)
      if (module_name == name || module_name.ends_with("." + name)) {
        value = own;
        break;
      }
    return value / (use_rslora ? std::sqrt(static_cast<double>(rank)) : rank);
  }
};

Status Unsupported(const fs::path& path, std::string_view field, std::string_view what) {
  return Unimplemented(fmt::format("{}: {}: {}", path.string(), field, what));
}

bool IsSet(const nlohmann::json* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  return !((value->is_array() || value->is_object() || value->is_string()) && value->empty());
}

// Settings that change what the factors mean.
Status CheckSupported(const fs::path& path, artifact::JsonFields& fields) {
  const std::string type = fields.StringOr("peft_type", "LORA");
  if (type != "LORA")
    return Unsupported(path, "peft_type", "got " + type + ", only LORA is supported");
  if (fields.BoolOr("use_dora", false))
    return Unsupported(path, "use_dora", "adapters with magnitudes (DoRA) are not supported");
  if (IsSet(fields.Find("modules_to_save")))
    return Unsupported(path, "modules_to_save",
                       "adapters that replace modules of the model are not supported");
  for (const char* name : {"megatron_config", "layer_replication"})
    if (IsSet(fields.Find(name))) return Unsupported(path, name, "is not supported");
  const nlohmann::json* init = fields.Find("init_lora_weights");
  if (init != nullptr && init->is_string())
    for (const std::string_view kind : {"pissa", "olora", "corda"})
      if (init->get<std::string>().starts_with(kind))
        return Unsupported(path, "init_lora_weights",
                           "got " + init->get<std::string>() +
                               ", which changes the model's weights too; convert the adapter to a "
                               "plain one");
  return fields.status();
}

Result<Settings> ReadSettings(const fs::path& path) {
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  artifact::JsonFields fields(path.string(), json);
  RETURN_IF_ERROR(CheckSupported(path, fields));
  Settings out;
  const int64_t rank = fields.IntOr("r", 8, 1, ops::kMaxLoraRank);
  out.alpha = fields.NumberOr("lora_alpha", static_cast<double>(rank));
  out.use_rslora = fields.BoolOr("use_rslora", false);
  const std::string bias = fields.StringOr("bias", "none");
  if (bias != "none" && bias != "all" && bias != "lora_only")
    fields.Fail("bias", "got " + bias + ", must be none, all or lora_only");
  out.has_biases = bias != "none";
  out.has_biases_of_b = fields.BoolOr("lora_bias", false);
  RETURN_IF_ERROR(fields.status());
  const nlohmann::json* patterns = fields.Find("alpha_pattern");
  if (!IsSet(patterns)) return out;
  if (!patterns->is_object()) fields.Fail("alpha_pattern", "must be an object");
  RETURN_IF_ERROR(fields.status());
  // PEFT takes the first that fits.
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   artifact::NamesInOrder(path, "alpha_pattern"));
  for (const std::string& name : names) {
    const nlohmann::json& value = patterns->at(name);
    if (!value.is_number() || std::abs(value.get<double>()) > kMaxAlpha)
      return InvalidArgument(fmt::format("{}: alpha_pattern: {}: must be a number of at most {}",
                                         path.string(), name, kMaxAlpha));
    if (name.find_first_of("*+?()[]{}|^$\\") != std::string::npos)
      return Unsupported(path, "alpha_pattern",
                         name + " is a regular expression, only names of modules are supported");
    out.alpha_pattern.emplace_back(name, value.get<double>());
  }
  return out;
}

// The number behind ".layers." or ".h.", and what follows it.
bool SplitLayer(std::string_view name, int* layer, std::string_view* rest) {
  for (const std::string_view list : {".layers.", ".h."}) {
    const size_t at = name.find(list);
    if (at == std::string_view::npos) continue;
    const std::string_view number = name.substr(at + list.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *layer);
    if (error != std::errc() || *layer < 0) return false;
    *rest = number.substr(static_cast<size_t>(end - number.data()));
    if (!rest->starts_with('.')) return false;
    rest->remove_prefix(1);
    return true;
  }
  return false;
}

bool CutEnd(std::string_view end, std::string_view* name) {
  if (!name->ends_with(end)) return false;
  name->remove_suffix(end.size());
  return true;
}

// What a tensor is by its name, of which the module's is left. A module that has factors holds the
// model's own as its `base_layer`.
std::optional<Kind> CutKind(std::string_view* name) {
  const size_t a = name->find(".lora_A.");
  const size_t b = name->find(".lora_B.");
  const bool is_bias = CutEnd(".bias", name);
  if (a == std::string_view::npos && b == std::string_view::npos) {
    CutEnd(".base_layer", name);
    return is_bias ? std::optional(Kind::kBias) : std::nullopt;
  }
  if (!is_bias && !CutEnd(".weight", name)) return std::nullopt;
  *name = name->substr(0, std::min(a, b));
  if (b == std::string_view::npos) return is_bias ? std::nullopt : std::optional(Kind::kA);
  return is_bias ? Kind::kBiasOfB : Kind::kB;
}

Result<Key> ParseKey(const std::string& tensor, const std::string& where) {
  const auto unsupported = [&](std::string_view what) {
    return Unimplemented(fmt::format("{}: {}: {}", where, tensor, what));
  };
  std::string_view name = tensor;
  if (name.find("lora_magnitude_vector") != std::string_view::npos)
    return unsupported("adapters with magnitudes (DoRA) are not supported");
  if (name.find("lora_embedding_") != std::string_view::npos)
    return unsupported("adapters of embeddings are not supported");
  if (name.find("lm_head") != std::string_view::npos)
    return unsupported("adapters of lm_head are not supported");
  const std::optional<Kind> kind = CutKind(&name);
  if (!kind) return unsupported("is no factor of an adapter (lora_A or lora_B) and no bias");
  Key key = {.kind = *kind};
  for (const std::string_view prefix : {"base_model.model.", "base_model."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  key.module_name = name;
  const std::string path = "." + key.module_name;
  std::string_view linear;  // in it
  if (!SplitLayer(path, &key.layer, &linear))
    return unsupported("has no layer in its name; adapters of layers' linears are supported");
  for (const Linear& known : kLinears)
    if (linear == known.name) {
      key.module = known.module;
      return key;
    }
  return unsupported(fmt::format("{} is no linear that adapters are supported for{}", linear,
                                 *kind == Kind::kBias ? " (bias lora_only leaves it out)" : ""));
}

struct Pair {
  std::string module_name;
  const artifact::StoredTensor* a = nullptr;          // [rank, in]
  const artifact::StoredTensor* b = nullptr;          // [out, rank]
  const artifact::StoredTensor* bias_of_b = nullptr;  // [out]
  const artifact::StoredTensor* bias = nullptr;       // [out]

  const artifact::StoredTensor*& Of(Kind kind) {
    switch (kind) {
      case Kind::kA:
        return a;
      case Kind::kB:
        return b;
      case Kind::kBiasOfB:
        return bias_of_b;
      case Kind::kBias:
        break;
    }
    return bias;
  }
};
using Pairs = std::map<std::pair<int, int>, Pair>;  // layer, module

bool IsFactorDType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

// Biases that the settings do not tell of are none that training left there.
Status CheckBias(Kind kind, const Settings& settings, const std::string& tensor,
                 const std::string& where) {
  if (kind == Kind::kBiasOfB && !settings.has_biases_of_b)
    return InvalidArgument(
        fmt::format("{}: {}: got a bias, and {} says no lora_bias", where, tensor, kConfig));
  if (kind == Kind::kBias && !settings.has_biases)
    return InvalidArgument(
        fmt::format("{}: {}: got a bias, and {} says bias none", where, tensor, kConfig));
  return Status::Ok();
}

Status CheckPair(const Pair& pair, const std::string& where) {
  if (pair.a == nullptr && pair.b == nullptr && pair.bias_of_b == nullptr) return Status::Ok();
  const auto* known = pair.a != nullptr ? pair.a : pair.b != nullptr ? pair.b : pair.bias_of_b;
  if (pair.a == nullptr || pair.b == nullptr)
    return InvalidArgument(fmt::format("{}: {}: has no {} beside it", where, known->name,
                                       pair.a == nullptr ? "lora_A" : "lora_B"));
  const int64_t rank = pair.a->shape[0];
  if (pair.b->shape[1] != rank || rank < 1 || rank > ops::kMaxLoraRank)
    return InvalidArgument(fmt::format("{}: {}: got {} and {}, both need one rank in [1, {}]",
                                       where, known->name, pair.a->shape.ToString(),
                                       pair.b->shape.ToString(), ops::kMaxLoraRank));
  return Status::Ok();
}

Result<Pairs> PairsOf(const artifact::TensorSet& set, const Settings& settings,
                      const std::string& where) {
  Pairs pairs;
  bool has_factors = false;
  for (const artifact::StoredTensor& tensor : set.tensors()) {
    ASSIGN_OR_RETURN(Key key, ParseKey(tensor.name, where));
    RETURN_IF_ERROR(CheckBias(key.kind, settings, tensor.name, where));
    const bool is_factor = key.kind == Kind::kA || key.kind == Kind::kB;
    if (tensor.shape.rank() != (is_factor ? 2 : 1) || !IsFactorDType(tensor.dtype))
      return InvalidArgument(fmt::format(
          "{}: {}: got {} {}, must be floats of {}", where, tensor.name, DTypeName(tensor.dtype),
          tensor.shape.ToString(), is_factor ? "two dimensions" : "one dimension"));
    Pair& pair = pairs[{key.layer, key.module}];
    const artifact::StoredTensor*& place = pair.Of(key.kind);
    if (place != nullptr)
      return InvalidArgument(fmt::format("{}: {}: {} is the same {} of the same layer", where,
                                         tensor.name, place->name, is_factor ? "factor" : "bias"));
    place = &tensor;
    pair.module_name = std::move(key.module_name);
    has_factors |= is_factor;
  }
  for (const auto& [place, pair] : pairs) RETURN_IF_ERROR(CheckPair(pair, where));
  if (!has_factors) return InvalidArgument(where + ": has no factors of an adapter");
  return pairs;
}
void Append(const artifact::StoredTensor& tensor, double scale, float** to) {
  const int64_t n = tensor.shape.num_elements();
  for (int64_t i = 0; i < n; ++i)
    *(*to)++ = static_cast<float>(LoadFloat(tensor.data.data(), tensor.dtype, i) * scale);
}

LoraTensors Join(const Pairs& pairs, const Settings& settings) {
  LoraTensors out;
  out.dtype = LoraDType::kFloat32;
  for (const auto& [place, pair] : pairs) {
    if (pair.a == nullptr) continue;
    const auto rank = static_cast<int>(pair.a->shape[0]);
    out.rows.push_back({.module = place.second, .layer = place.first, .rank = rank});
    out.width = std::max(out.width, rank * (pair.a->shape[1] + pair.b->shape[0]));
  }
  out.weights.resize(out.rows.size() * static_cast<size_t>(out.width) * sizeof(float));
  auto* row = reinterpret_cast<float*>(out.weights.data());
  for (const auto& [place, pair] : pairs) {
    const auto add_bias = [&](const artifact::StoredTensor& tensor, double scale, bool replaces) {
      LoraTensors::Bias& bias = out.biases.emplace_back();
      bias = {.module = place.second, .layer = place.first, .replaces = replaces, .values = {}};
      bias.values.resize(static_cast<size_t>(tensor.shape.num_elements()));
      float* to = bias.values.data();
      Append(tensor, scale, &to);
    };
    if (pair.bias != nullptr) add_bias(*pair.bias, 1, /*replaces=*/true);
    if (pair.a == nullptr) continue;
    const double scale = settings.ScaleOf(pair.module_name, static_cast<int>(pair.a->shape[0]));
    float* to = row;
    Append(*pair.a, 1, &to);
    Append(*pair.b, scale, &to);
    row += out.width;
    if (pair.bias_of_b != nullptr) add_bias(*pair.bias_of_b, scale, /*replaces=*/false);
  }
  return out;
}

}  // namespace

bool IsPeftAdapter(const fs::path& dir) { return FileExists(dir / kConfig); }

Result<LoraTensors> ReadPeftAdapter(const fs::path& dir) {
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings(dir / kConfig));
  const bool is_torch = !FileExists(dir / kSafetensors);
  const fs::path path = dir / (is_torch ? kTorch : kSafetensors);
  if (is_torch && !FileExists(path))
    return NotFound(fmt::format("{}: has neither {} nor {}", dir.string(), kSafetensors, kTorch));
  Result<artifact::TensorSet> set =
      is_torch ? artifact::TensorSet::OpenTorchFile(path) : artifact::TensorSet::OpenFile(path);
  if (!set.ok()) return set.status();
  ASSIGN_OR_RETURN(const Pairs pairs, PairsOf(*set, settings, path.string()));
  return Join(pairs, settings);
}

}  // namespace inflight::builder
