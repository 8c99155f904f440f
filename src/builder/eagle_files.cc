// SPDX-License-Identifier: Apache-2.0
#include "builder/eagle_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "artifact/engine_file.h"
#include "artifact/json_file.h"
#include "artifact/tensor_set.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

namespace fs = std::filesystem;
using artifact::JsonFields;
using artifact::StoredTensor;
using artifact::TensorSet;
using model::EagleConfig;
using model::ModelConfig;
using nlohmann::json;

constexpr char kFc[] = "fc.weight";
constexpr char kLayerIds[] = "eagle_aux_hidden_state_layer_ids";

Status Refuse(const std::string& where, std::string_view field, const std::string& why) {
  return InvalidArgument(fmt::format("{}: {}: {}", where, field, why));
}

std::string LayerPrefix(const TensorSet& tensors) {
  return tensors.Find("midlayer.self_attn.q_proj.weight") != nullptr ? "midlayer." : "layers.0.";
}

// Of a layer of Llama, whatever the name of the head's class is; the fields that its family reads.
Result<ModelConfig> ReadLayer(const std::string& where, json object) {
  const json* const names = JsonFields(where, object).Find("architectures");
  const bool has_name =
      names != nullptr && names->is_array() && names->size() == 1 && (*names)[0].is_string();
  if (names != nullptr &&
      !(has_name && (*names)[0].get<std::string>().find("Llama") != std::string::npos))
    return Unimplemented(
        fmt::format("{}: architectures: got {}, heads of EAGLE with a layer of "
                    "Llama are supported",
                    where, artifact::Abbreviate(*names)));
  if (names != nullptr) object["architectures"] = json::array({"LlamaForCausalLM"});
  ASSIGN_OR_RETURN(const HfConfig hf, ParseHfConfig(object, where));
  if (hf.quantization != nullptr)
    return Unimplemented(
        fmt::format("{}: quantization_config: got {}, a head of plain weights is "
                    "supported",
                    where, hf.quantization->Describe()));
  if (hf.config.architecture != "LlamaForCausalLM")
    return Unimplemented(
        fmt::format("{}: model_type: got {}, heads of EAGLE with a layer of llama "
                    "are supported",
                    where, artifact::Abbreviate(object["model_type"])));
  return hf.config;
}

Status CheckFits(const ModelConfig& layer, const ModelConfig& target, const std::string& where) {
  const auto compare = [&](std::string_view field, int got, int needed) {
    return got == needed ? Status::Ok()
                         : Refuse(where, field,
                                  fmt::format("got {}, the model's is {}; the head is another "
                                              "model's",
                                              got, needed));
  };
  RETURN_IF_ERROR(compare("hidden_size", layer.hidden_size, target.hidden_size));
  RETURN_IF_ERROR(compare("vocab_size", layer.vocab_size, target.vocab_size));
  if (layer.num_layers != 1)
    return Unimplemented(
        fmt::format("{}: num_hidden_layers: got {}, heads of one layer are "
                    "supported",
                    where, layer.num_layers));
  if (layer.rope_scaling.kind == model::RopeScaling::Kind::kDynamic)
    return Unimplemented(
        fmt::format("{}: rope_scaling: got dynamic, which is not supported in "
                    "heads of EAGLE",
                    where));
  if (EmbeddingScale(target) != 1 || target.logits_softcap != 0)
    return Unimplemented(fmt::format(
        "{}: heads of EAGLE are supported for models whose embedding and logits are not scaled",
        where));
  return Status::Ok();
}

// Whose residuals a head of version 3 reads: what the file says, or what the training's code has
// (SafeAILab/EAGLE/eagle/model/modeling_llama_kv.py).
Result<std::vector<int>> TargetLayers(JsonFields& fields, int num_layers) {
  const json* ids = fields.Find(kLayerIds);
  const json* const section = fields.FindObject("eagle_config");
  RETURN_IF_ERROR(fields.status());
  if (ids == nullptr && section != nullptr && section->contains(kLayerIds))
    ids = &(*section)[kLayerIds];
  std::vector<int> layers = {2, num_layers / 2, num_layers - 3};
  if (ids != nullptr) {
    layers.clear();
    const auto is_id = [](const json& id) { return id.is_number_integer(); };
    if (ids->is_array() && std::ranges::all_of(*ids, is_id)) layers = ids->get<std::vector<int>>();
  }
  const bool ascends = std::ranges::adjacent_find(layers, std::greater_equal<>()) == layers.end();
  if (!layers.empty() && ascends && layers.front() >= 0 && layers.back() < num_layers)
    return layers;
  return Refuse(fields.where(), kLayerIds,
                ids != nullptr
                    ? fmt::format("got {}, ascending layers of the model's {} are needed, from 0",
                                  artifact::Abbreviate(*ids), num_layers)
                    : fmt::format("is missing; a model of {} layers has no layers 2, n / 2 and n - "
                                  "3 that ascend",
                                  num_layers));
}

Result<const StoredTensor*> Find(const TensorSet& tensors, const std::string& name,
                                 const Shape& shape, const std::string& where) {
  const StoredTensor* const tensor = tensors.Find(name);
  if (tensor == nullptr) return Refuse(where, name, "is missing");
  if (tensor->shape != shape)
    return Refuse(where, name,
                  fmt::format("got {}, needed {}", tensor->shape.ToString(), shape.ToString()));
  if (tensor->dtype != DType::kF32 && tensor->dtype != DType::kF16 && tensor->dtype != DType::kBF16)
    return Refuse(
        where, name,
        fmt::format("got {}, float32, bfloat16 or float16 is needed", DTypeName(tensor->dtype)));
  return tensor;
}

// A tensor of a head, from stored ones of those names that stand below each other.
struct Part {
  std::vector<std::string> names;
  std::vector<int64_t> rows;  // of each
  int64_t width = 0;          // 0: a vector
  ops::Weight* weight = nullptr;
  TensorView* vector = nullptr;

  int64_t num_rows() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
};

std::vector<Part> PartsOf(const EagleConfig& config, const std::string& prefix,
                          model::EagleWeights& w) {
  const ModelConfig& c = config.layer;
  const int64_t hidden = c.hidden_size;
  const int64_t inner = c.intermediate_size;
  const int64_t q = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_kv_heads} * c.head_dim;
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  std::vector<Part> parts;
  const auto matrix = [&](std::vector<std::string> names, std::vector<int64_t> rows, int64_t width,
                          ops::Weight* to) {
    for (std::string& name : names) name += ".weight";
    parts.push_back({std::move(names), std::move(rows), width, to, nullptr});
  };
  const auto vector = [&](bool is_there, std::vector<std::string> names, std::vector<int64_t> rows,
                          TensorView* to) {
    if (is_there) parts.push_back({std::move(names), std::move(rows), 0, nullptr, to});
  };
  const bool is_3 = config.version == 3;
  if (config.has_table) matrix({"embed_tokens"}, {c.vocab_size}, hidden, &w.table);
  matrix({"fc"}, {hidden}, config.fc_width(), &w.fc);
  vector(config.fc_bias, {"fc.bias"}, {hidden}, &w.fc_bias);
  vector(is_3, {prefix + "input_layernorm.weight"}, {hidden}, &w.layer.input_norm_weight);
  vector(is_3, {prefix + "hidden_norm.weight"}, {hidden}, &w.hidden_norm);
  matrix({attention + "q_proj", attention + "k_proj", attention + "v_proj"}, {q, kv, kv},
         config.qkv_width(), &w.layer.qkv);
  vector(c.qkv_bias,
         {attention + "q_proj.bias", attention + "k_proj.bias", attention + "v_proj.bias"},
         {q, kv, kv}, &w.layer.qkv_bias);
  matrix({attention + "o_proj"}, {hidden}, q, &w.layer.dense);
  vector(c.dense_bias, {attention + "o_proj.bias"}, {hidden}, &w.layer.dense_bias);
  vector(true, {prefix + "post_attention_layernorm.weight"}, {hidden}, &w.layer.post_norm_weight);
  matrix({mlp + "gate_proj"}, {inner}, hidden, &w.layer.fc);  // the names cross: engine.h
  vector(c.mlp_bias, {mlp + "gate_proj.bias"}, {inner}, &w.layer.fc_bias);
  matrix({mlp + "up_proj"}, {inner}, hidden, &w.layer.gate);
  vector(c.mlp_bias, {mlp + "up_proj.bias"}, {inner}, &w.layer.gate_bias);
  matrix({mlp + "down_proj"}, {hidden}, inner, &w.layer.proj);
  vector(c.mlp_bias, {mlp + "down_proj.bias"}, {hidden}, &w.layer.proj_bias);
  vector(is_3, {"norm.weight"}, {hidden}, &w.final_norm);
  if (is_3) matrix({"lm_head"}, {config.draft_vocab_size}, hidden, &w.lm_head);
  return parts;
}

ops::WeightLayout LayoutOn(DeviceKind device, DType dtype) {
  return device == DeviceKind::kCpu ? ops::CpuWeightLayout(dtype) : ops::WeightLayout::kRowMajor;
}

uint64_t PartBytes(const Part& part, DType dtype, DeviceKind device) {
  const int64_t rows = part.num_rows();
  return artifact::EngineAlignUp(
      part.width == 0 ? BytesOf(DType::kF32, rows)
                      : ops::WeightBytes(dtype, LayoutOn(device, dtype), rows, part.width));
}

// Everything in the files is read, or known not to be.
Status CheckNames(const TensorSet& tensors, const std::vector<Part>& parts, bool is_3,
                  const std::string& where) {
  for (const StoredTensor& tensor : tensors.tensors()) {
    const auto reads = [&](const Part& part) {
      return std::ranges::count(part.names, tensor.name);
    };
    if (tensor.name == "embed_tokens.weight" || tensor.name.ends_with("rotary_emb.inv_freq") ||
        (is_3 && (tensor.name == "d2t" || tensor.name == "t2d")) ||
        std::ranges::any_of(parts, reads))
      continue;
    return Unimplemented(
        fmt::format("{}: {}: heads of EAGLE of version {} have no such tensor "
                    "(what they have: docs/reference/artifacts.md)",
                    where, tensor.name, is_3 ? 3 : 1));
  }
  return Status::Ok();
}

// Rows of float32 | f16 | bf16 become those of `dtype`.
void Convert(const StoredTensor& from, DType dtype, void* to, CpuPool& pool) {
  constexpr int64_t kItem = 1 << 16;
  const int64_t n = from.shape.num_elements();
  pool.ParallelFor((n + kItem - 1) / kItem, [&](int64_t item) {
    for (int64_t i = item * kItem; i < std::min(n, (item + 1) * kItem); ++i)
      StoreFloat(to, dtype, i, LoadFloat(from.data.data(), from.dtype, i));
  });
}

// Puts the part at `target` of the device's memory.
Status Fill(const Part& part, const TensorSet& tensors, DType dtype, const std::string& where,
            Device& device, std::byte* target) {
  CpuPool& pool = device.cpu_pool();
  const int64_t num_rows = part.num_rows();
  const bool is_matrix = part.width > 0;
  const DType read = is_matrix ? dtype : DType::kF32;
  const int64_t width = is_matrix ? part.width : 1;
  std::vector<std::byte> rows(BytesOf(read, num_rows * width));
  int64_t first = 0;
  for (size_t i = 0; i < part.names.size(); ++i) {
    const Shape shape = is_matrix ? Shape{part.rows[i], width} : Shape{part.rows[i]};
    ASSIGN_OR_RETURN(const StoredTensor* const tensor, Find(tensors, part.names[i], shape, where));
    Convert(*tensor, read, rows.data() + BytesOf(read, first * width), pool);
    first += part.rows[i];
  }
  if (!is_matrix) {
    *part.vector = {target, DType::kF32, {num_rows}};
    return device.Copy(target, rows.data(), rows.size());
  }
  const ops::WeightLayout layout = LayoutOn(device.kind(), dtype);
  *part.weight = {.data = target,
                  .dtype = dtype,
                  .layout = layout,
                  .out_features = num_rows,
                  .in_features = width};
  if (device.kind() != DeviceKind::kCpu) return device.Copy(target, rows.data(), rows.size());
  ops::PackWeight({rows.data(), dtype, {num_rows, width}}, dtype, layout, target, &pool);
  return Status::Ok();
}

// d2t says how far each of the head's tokens lies from the model's.
Result<std::vector<int32_t>> TokenIds(const EagleConfig& config, const TensorSet& tensors,
                                      const std::string& where) {
  std::vector<int32_t> ids;
  const StoredTensor* const tensor = tensors.Find("d2t");
  if (config.version != 3) return ids;
  const int size = config.draft_vocab_size;
  if (tensor == nullptr) {
    if (size == config.layer.vocab_size) return ids;
    return Refuse(where, "d2t",
                  fmt::format("is missing; draft_vocab_size is {}, vocab_size {}", size,
                              config.layer.vocab_size));
  }
  if (tensor->dtype != DType::kI64 || tensor->shape != Shape{size})
    return Refuse(where, "d2t",
                  fmt::format("got {} {}, int64 {} is needed", DTypeName(tensor->dtype),
                              tensor->shape.ToString(), Shape{size}.ToString()));
  for (int i = 0; i < size; ++i) {
    const int64_t id = i + LoadAs<int64_t>(tensor->data.data(), i);
    if (id < 0 || id >= config.layer.vocab_size)
      return Refuse(where, "d2t",
                    fmt::format("token {} of the head is {} of the model, which has {}", i, id,
                                config.layer.vocab_size));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Of a head beside stages on GPUs.
Status CheckOnLastStage(const EagleConfig& config, const TensorSet& tensors,
                        const std::string& where) {
  if (config.version == 3)
    return Unimplemented(fmt::format(
        "{}: got a head of EAGLE-3 beside stages on GPUs, where it reads of layers that other "
        "stages have; use a head of EAGLE, a draft model, --speculation ngram or suffix, "
        "tensor_parallel_size alone, or --device cpu",
        where));
  if (tensors.Find("embed_tokens.weight") != nullptr) return Status::Ok();
  return Refuse(where, "embed_tokens.weight",
                "is missing; beside stages on GPUs a head has a table of its own, since the "
                "model's is on the first stage. Copy the model's into the head's file, or use "
                "tensor_parallel_size alone");
}

Result<EagleConfig> Describe(const fs::path& dir, const TensorSet& tensors,
                             const ModelConfig& target, EaglePlace place) {
  const std::string where = (dir / artifact::kConfigFile).string();
  ASSIGN_OR_RETURN(const json object, artifact::ReadJsonFile(where));
  EagleConfig config;
  ASSIGN_OR_RETURN(config.layer, ReadLayer(where, object));
  RETURN_IF_ERROR(CheckFits(config.layer, target, where));
  config.layer.dtype = target.dtype;
  JsonFields fields(where, object);
  const bool is_3 = tensors.Find(LayerPrefix(tensors) + "hidden_norm.weight") != nullptr;
  config.version = is_3 ? 3 : 1;
  config.fc_bias = tensors.Find("fc.bias") != nullptr;
  config.draft_vocab_size = target.vocab_size;
  if (is_3) {
    config.draft_vocab_size =
        static_cast<int>(fields.IntOr("draft_vocab_size", target.vocab_size, 1, target.vocab_size));
    ASSIGN_OR_RETURN(config.target_layers, TargetLayers(fields, target.num_layers));
  } else if (fields.BoolOr("bias", config.fc_bias) != config.fc_bias) {
    fields.Fail("bias", fmt::format("fc.bias is {}there", config.fc_bias ? "" : "not "));
  }
  if (fields.BoolOr("norm_before_residual", false))
    return Unimplemented(
        fmt::format("{}: norm_before_residual: got true, heads without are "
                    "supported",
                    where));
  RETURN_IF_ERROR(fields.status());
  if (place == EaglePlace::kLastStage) {
    RETURN_IF_ERROR(CheckOnLastStage(config, tensors, dir.string()));
    config.has_table = true;
  }
  return config;
}

}  // namespace

bool IsEagleHead(const fs::path& dir) {
  const auto kind = Detect(dir);
  if (!kind.ok() || *kind != SourceKind::kHuggingFace) return false;
  const auto tensors = TensorSet::OpenModel(dir);
  return tensors.ok() && tensors->Find(kFc) != nullptr;
}

Result<EagleConfig> DescribeEagleHead(const fs::path& dir, const ModelConfig& target,
                                      EaglePlace place) {
  ASSIGN_OR_RETURN(const TensorSet tensors, TensorSet::OpenModel(dir));
  return Describe(dir, tensors, target, place);
}

uint64_t EagleHeadBytes(const EagleConfig& config, DeviceKind device) {
  model::EagleWeights unused;
  uint64_t total = 0;
  for (const Part& part : PartsOf(config, "", unused))
    total += PartBytes(part, config.layer.dtype, device);
  return total;
}

Result<std::shared_ptr<const model::EagleHead>> OpenEagleHead(const fs::path& dir,
                                                              const ModelConfig& target,
                                                              Device& device, EaglePlace place) {
  ASSIGN_OR_RETURN(const TensorSet tensors, TensorSet::OpenModel(dir));
  auto head = std::make_shared<model::EagleHead>();
  ASSIGN_OR_RETURN(head->config, Describe(dir, tensors, target, place));
  const DType dtype = head->config.layer.dtype;
  const std::string where = dir.string();
  const std::vector<Part> parts = PartsOf(head->config, LayerPrefix(tensors), head->weights);
  RETURN_IF_ERROR(CheckNames(tensors, parts, head->config.version == 3, where));
  head->weight_bytes = EagleHeadBytes(head->config, device.kind());
  ASSIGN_OR_RETURN(head->buffer,
                   Buffer::Allocate(device, "EAGLE head's weights", head->weight_bytes));
  std::byte* target_bytes = head->buffer.data();
  for (const Part& part : parts) {
    RETURN_IF_ERROR(Fill(part, tensors, dtype, where, device, target_bytes));
    target_bytes += PartBytes(part, dtype, device.kind());
  }
  ASSIGN_OR_RETURN(head->weights.token_ids, TokenIds(head->config, tensors, where));
  return std::shared_ptr<const model::EagleHead>(std::move(head));
}

}  // namespace inflight::builder
