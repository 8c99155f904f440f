// SPDX-License-Identifier: Apache-2.0
#include "builder/weight_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "base/check.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "builder/recipes.h"
#include "model/config_json.h"

namespace inflight::builder {
namespace {

using artifact::StoredTensor;

float LoadFloat(const std::byte* from, DType dtype) {
  uint16_t half = 0;
  switch (dtype) {
    case DType::kF32: {
      float value = 0;
      std::memcpy(&value, from, sizeof(value));
      return value;
    }
    case DType::kF64: {
      double value = 0;
      std::memcpy(&value, from, sizeof(value));
      return static_cast<float>(value);
    }
    case DType::kF16:
      std::memcpy(&half, from, sizeof(half));
      return Float16{half}.ToFloat();
    case DType::kBF16:
      std::memcpy(&half, from, sizeof(half));
      return BFloat16{half}.ToFloat();
    default:
      CHECK(false);
  }
}

void StoreFloat(float value, DType dtype, std::byte* to) {
  uint16_t half = 0;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(to, &value, sizeof(value));
      return;
    case DType::kF16:
      half = Float16::FromFloat(value).bits;
      break;
    case DType::kBF16:
      half = BFloat16::FromFloat(value).bits;
      break;
    default:
      CHECK(false);
  }
  std::memcpy(to, &half, sizeof(half));
}

// Elements at from, from + stride, ... become consecutive ones of `dtype`.
void ConvertStrided(const std::byte* from, DType from_dtype, size_t stride_bytes, int64_t n,
                    DType dtype, std::byte* to) {
  const size_t to_bytes = SizeOf(dtype);
  if (from_dtype == dtype && stride_bytes == to_bytes) {
    std::memcpy(to, from, static_cast<size_t>(n) * to_bytes);
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += stride_bytes, to += to_bytes) {
    if (from_dtype == dtype)
      std::memcpy(to, from, to_bytes);
    else
      StoreFloat(LoadFloat(from, from_dtype), dtype, to);
  }
}

// The dtype of a model whose configuration does not say one: its embedding's.
DType StoredDType(const WeightSource& source) {
  const DType dtype = source.recipes.at("transformer.vocab_embedding.weight").parts.front()->dtype;
  return dtype == DType::kF64 ? DType::kF32 : dtype;
}

bool HoldsInt8(const WeightSource& source) {
  return std::ranges::any_of(source.recipes,
                             [](const auto& named) { return IsInt8(named.second); });
}

Result<std::unique_ptr<WeightSource>> OpenHuggingFace(const std::filesystem::path& dir,
                                                      std::optional<DType> dtype) {
  auto source = std::make_unique<WeightSource>();
  source->where = dir.string();
  ASSIGN_OR_RETURN(HfConfig hf, ReadHfConfig(dir));
  ASSIGN_OR_RETURN(source->tensors, artifact::TensorSet::OpenModel(dir));
  source->config = std::move(hf.config);
  RETURN_IF_ERROR(MakeHuggingFaceRecipes(*source));
  source->config.dtype = dtype.value_or(hf.dtype.value_or(StoredDType(*source)));
  return source;
}

Result<std::unique_ptr<WeightSource>> OpenCheckpoint(const std::filesystem::path& dir,
                                                     std::optional<DType> dtype) {
  auto source = std::make_unique<WeightSource>();
  source->where = dir.string();
  const std::filesystem::path path = dir / artifact::kConfigFile;
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  ASSIGN_OR_RETURN(source->config, model::ConfigFromCheckpoint(json, path.string()));
  ASSIGN_OR_RETURN(source->tensors, artifact::OpenCheckpointTensors(dir, json));
  if (dtype) source->config.dtype = *dtype;
  RETURN_IF_ERROR(MakeCheckpointRecipes(*source));
  artifact::JsonFields fields(path.string(), json);
  if (HoldsInt8(*source) && !fields.BoolOr("disable_weight_only_quant_plugin", false))
    return Unimplemented(fmt::format(
        "{}: disable_weight_only_quant_plugin: got false: int8 weights in the layout of "
        "TensorRT-LLM's plug-in, which fits one kind of GPU, cannot be read; convert "
        "with --disable-weight-only-quant-plugin, or from the Hugging Face model",
        path.string()));
  RETURN_IF_ERROR(fields.status());
  return source;
}

}  // namespace

void CopyRows(const WeightRecipe& recipe, int64_t row, int64_t num_rows, DType dtype, void* out) {
  const bool is_vector = recipe.shape.rank() == 1;
  const int64_t width = is_vector ? 1 : recipe.shape[1];
  const size_t row_bytes = static_cast<size_t>(width) * SizeOf(dtype);
  auto* to = static_cast<std::byte*>(out);
  if (recipe.is_transposed) {
    const StoredTensor& part = *recipe.parts.front();
    const size_t element = SizeOf(part.dtype);
    const size_t stride = static_cast<size_t>(part.shape[1]) * element;
    for (int64_t r = row; r < row + num_rows; ++r, to += row_bytes)
      ConvertStrided(part.data.data() + static_cast<size_t>(r) * element, part.dtype, stride, width,
                     dtype, to);
    return;
  }
  int64_t first = 0;  // row of the checkpoint tensor where `part` begins
  for (const StoredTensor* part : recipe.parts) {
    const int64_t begin = std::max(row, first);
    const int64_t end = std::min(row + num_rows, first + part->shape[0]);
    if (begin < end) {
      const size_t element = SizeOf(part->dtype);
      const int64_t n = (end - begin) * width;
      ConvertStrided(part->data.data() + static_cast<size_t>((begin - first) * width) * element,
                     part->dtype, element, n, dtype, to);
      to += static_cast<size_t>(n) * SizeOf(dtype);
    }
    first += part->shape[0];
  }
}

bool IsInt8(const WeightRecipe& recipe) { return recipe.parts.front()->dtype == DType::kI8; }

Result<std::unique_ptr<WeightSource>> OpenWeightSource(const std::filesystem::path& dir,
                                                       std::optional<DType> dtype,
                                                       std::optional<model::QuantAlgo> quant_algo) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  if (kind == SourceKind::kEngine)
    return InvalidArgument(fmt::format(
        "{}: is an engine; a checkpoint or a Hugging Face directory is needed", dir.string()));
  ASSIGN_OR_RETURN(auto source, kind == SourceKind::kCheckpoint ? OpenCheckpoint(dir, dtype)
                                                                : OpenHuggingFace(dir, dtype));
  if (quant_algo == model::QuantAlgo::kNone && HoldsInt8(*source))
    return FailedPrecondition(fmt::format(
        "{}: the weights are int8 already; convert the model again for others", dir.string()));
  if (quant_algo) source->config.quant_algo = *quant_algo;
  if (const Status valid = model::Validate(source->config); !valid.ok())
    return valid.WithPrefix(dir.string());
  return source;
}

}  // namespace inflight::builder
