// SPDX-License-Identifier: Apache-2.0
#include "builder/weight_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/gguf_model.h"
#include "artifact/json_file.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/gguf_config.h"
#include "builder/hf_config.h"
#include "builder/medusa_files.h"
#include "builder/merge.h"
#include "builder/native_forms.h"
#include "builder/recipes.h"
#include "builder/sharding.h"
#include "builder/widened_forms.h"
#include "model/config_json.h"
#include "model/supported.h"
#include "quantized/block_form.h"
#include "tensor/element.h"

namespace inflight::builder {
namespace {

using artifact::StoredTensor;

constexpr int64_t kRowsAtOnce = 16;  // of a tensor whose elements are computed

// Elements at from, from + stride, ... become consecutive ones of `dtype`.
void ConvertStrided(const std::byte* from, DType from_dtype, size_t stride_bytes, int64_t n,
                    DType dtype, std::byte* to) {
  const size_t to_bytes = SizeOf(dtype);
  for (int64_t i = 0; i < n; ++i, from += stride_bytes, to += to_bytes) {
    if (from_dtype == dtype)
      std::memcpy(to, from, to_bytes);
    else
      StoreFloat(to, dtype, 0, LoadFloat(from, from_dtype, 0));
  }
}

// Where row `row` of a part's tensor is stored, counted as `stored_row`.
int64_t StoredRow(const WeightPart& part, int64_t row) {
  if (part.pair_rows == 0) return part.stored_row + (row - part.stored_row) * part.row_step;
  const int64_t in_head = row % part.pair_rows;
  const int64_t half = part.pair_rows / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

void CopyPlain(const std::byte* from, DType from_dtype, int64_t n, DType dtype, std::byte* to) {
  if (from_dtype == dtype)
    std::memcpy(to, from, BytesOf(dtype, n));
  else
    ConvertStrided(from, from_dtype, SizeOf(from_dtype), n, dtype, to);
}

// A block of what a reader makes, rows of `to` `to_row_bytes` apart.
void CopyComputed(const StoredTensor& tensor, const artifact::TensorBlock& block, DType dtype,
                  size_t to_row_bytes, std::byte* to) {
  const size_t row_bytes = BytesOf(tensor.dtype, block.num_columns);
  if (tensor.dtype == dtype && row_bytes == to_row_bytes) return tensor.reader->Read(block, to);
  std::vector<std::byte> rows(row_bytes *
                              static_cast<size_t>(std::min(block.num_rows, kRowsAtOnce)));
  for (int64_t done = 0; done < block.num_rows; done += kRowsAtOnce) {
    const int64_t num_rows = std::min(kRowsAtOnce, block.num_rows - done);
    tensor.reader->Read({.row = block.row + done,
                         .num_rows = num_rows,
                         .column = block.column,
                         .num_columns = block.num_columns},
                        rows.data());
    for (int64_t i = 0; i < num_rows; ++i, to += to_row_bytes)
      CopyPlain(rows.data() + static_cast<size_t>(i) * row_bytes, tensor.dtype, block.num_columns,
                dtype, to);
  }
}

// `n` elements from element `first` of a packed tensor on become consecutive ones of `dtype`.
void DecodeRun(const StoredTensor& tensor, int64_t first, int64_t n, DType dtype, std::byte* to) {
  constexpr int64_t kMost = artifact::BlockCodec::kMaxElements;  // a multiple of every block
  std::array<float, kMost> values;
  while (n > 0) {
    const int64_t taken = std::min(n, kMost - first % kMost);
    artifact::DecodeBlocks(*tensor.codec, tensor.data.data(), first, taken, values.data());
    CopyPlain(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, taken, dtype, to);
    to += BytesOf(dtype, taken);
    first += taken;
    n -= taken;
  }
}

// `n` elements from `first` on, counted over all of a tensor, become consecutive ones of `dtype`.
void CopyRun(const StoredTensor& tensor, int64_t first, int64_t n, DType dtype, std::byte* to) {
  if (tensor.codec != nullptr) return DecodeRun(tensor, first, n, dtype, to);
  CopyPlain(tensor.data.data() + BytesOf(tensor.dtype, first), tensor.dtype, n, dtype, to);
}

// The dtype of a model whose configuration does not say one: its embedding's. What is packed
// becomes bfloat16, which takes half of float32's memory and has its range.
DType StoredDType(const WeightSource& source) {
  const StoredTensor& table =
      *source.recipes.at("transformer.vocab_embedding.weight").parts.front().tensor;
  if (table.codec != nullptr || table.reader != nullptr) return DType::kBF16;
  return table.dtype == DType::kF64 ? DType::kF32 : table.dtype;
}

// The quantisation that the stored weights themselves have, whatever the configuration asks for.
model::QuantAlgo StoredQuantAlgo(const WeightSource& source) {
  const bool is_quantized = std::ranges::any_of(
      source.recipes, [](const auto& named) { return IsQuantized(named.second); });
  return is_quantized ? source.config.quant_algo : model::QuantAlgo::kNone;
}

// What becomes of packed weights, for people: `kept` are the names of those that are not widened.
std::string WhatBecomes(const WeightSource& source, const std::set<std::string>& kept) {
  const auto num_kept = std::ssize(kept);
  const int num_weights = source.packed.num_weights;
  const std::string widened = fmt::format("widened to {}", DTypeName(source.config.dtype));
  if (num_kept == 0) return fmt::format("{} weights, {}", num_weights, widened);
  if (num_kept == num_weights)
    return fmt::format("{} weights, kept as they are stored", num_weights);
  return fmt::format("{} weights, {} kept as they are stored and {} {}", num_weights, num_kept,
                     num_weights - num_kept, widened);
}

Result<std::unique_ptr<WeightSource>> OpenHuggingFace(const std::filesystem::path& dir,
                                                      const SourceOptions& options) {
  auto source = std::make_unique<WeightSource>();
  source->where = dir.string();
  ASSIGN_OR_RETURN(HfConfig hf, ReadHfConfig(dir));
  ASSIGN_OR_RETURN(artifact::TensorSet tensors, artifact::TensorSet::OpenModel(dir));
  if (hf.quantization != nullptr) {
    Result<quantized::Unpacked> packed = quantized::UnpackAll(*hf.quantization, tensors);
    if (!packed.ok()) return packed.status().WithPrefix(source->where);
    source->packed = *std::move(packed);
  }
  source->files.push_back(std::move(tensors));
  source->config = std::move(hf.config);
  RETURN_IF_ERROR(AddMedusaHeads(options.medusa, *source));
  RETURN_IF_ERROR(MakeHuggingFaceRecipes(*source));
  source->config.dtype = options.dtype.value_or(hf.dtype.value_or(StoredDType(*source)));
  if (hf.quantization != nullptr) {
    const std::set<std::string> kept = KeepNativeForms(options, *source);
    source->quantization =
        fmt::format("{}; {}", hf.quantization->Describe(), WhatBecomes(*source, kept));
  }
  return source;
}

// Blocks of integers as they are stored, and what the file has for people. float32 asks for every
// bit of the numbers, which are widened.
void KeepBlocks(const SourceOptions& options, WeightSource& source) {
  std::set<std::string_view> types;
  for (const StoredTensor& tensor : source.files.front().tensors()) {
    if (tensor.codec == nullptr) continue;
    ++source.packed.num_weights;
    types.insert(tensor.codec->name);
    std::optional<quantized::NativeForm> form = quantized::FormOfBlocks(tensor);
    if (form) source.packed.native.emplace(tensor.name, *std::move(form));
  }
  if (types.empty()) return;
  std::set<std::string> kept;
  if (options.dtype != DType::kF32) kept = KeepNativeForms(options, source);
  source.quantization =
      fmt::format("GGUF blocks, {}; {}", fmt::join(types, ", "), WhatBecomes(source, kept));
}

Result<std::unique_ptr<WeightSource>> OpenGguf(const std::filesystem::path& path,
                                               const SourceOptions& options) {
  if (!options.medusa.dir.empty())
    return Unimplemented(path.string() + ": Medusa's heads beside a GGUF file are not supported");
  auto source = std::make_unique<WeightSource>();
  source->where = path.string();
  ASSIGN_OR_RETURN(artifact::GgufModel model, artifact::OpenGguf(path));
  ASSIGN_OR_RETURN(source->config, ReadGgufConfig(model));
  source->files.push_back(std::move(model.tensors));
  RETURN_IF_ERROR(MakeGgufRecipes(*source));
  source->config.dtype = options.dtype.value_or(StoredDType(*source));
  KeepBlocks(options, *source);
  return source;
}

// Keys that upstream's tools or a person added are kept in engines; the unknown ones are said.
void KeepFurtherConfig(const nlohmann::json& json, const std::string& where, WeightSource& source) {
  nlohmann::json further = json;
  const nlohmann::json known = model::ConfigToCheckpoint(source.config);
  for (const auto& [key, value] : known.items()) further.erase(key);
  further.erase(kPipelineLayers);
  further.erase(model::kSharedExpertWidth);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : further.items())
    if (!model::IsCheckpointField(key)) unknown.push_back(key);
  if (!unknown.empty())
    logging::Warning("keys of config.json are kept and not used",
                     {{"path", where}, {"keys", fmt::format("{}", fmt::join(unknown, ","))}});
  if (!further.empty())
    source.further_config = std::make_shared<const nlohmann::json>(std::move(further));
}

// Scales of the KV cache that calibration found. FP8 blocks are stored with 1, as upstream's own
// recipe does without calibration.
void NoteKvScales(const WeightSource& source) {
  for (const artifact::TensorSet& file : source.files)
    for (const StoredTensor& tensor : file.tensors()) {
      if (!tensor.name.ends_with(kKvScale) || tensor.dtype != DType::kF32 || tensor.data.empty())
        continue;
      if (const float scale = LoadFloat(tensor.data.data(), tensor.dtype, 0); scale != 1.0F)
        return logging::Warning(
            "scales of the KV cache are not used, 1 is",
            {{"path", source.where}, {"tensor", tensor.name}, {"scale", scale}});
    }
}

// Of a checkpoint whose weights stand for numbers by upstream's rules: null if they do not.
Result<std::shared_ptr<const quantized::Method>> UpstreamMethod(const nlohmann::json& json,
                                                                const std::string& path) {
  artifact::JsonFields fields(path, json);
  const nlohmann::json* const quantization = fields.FindObject("quantization");
  const bool is_own = fields.BoolOr("disable_weight_only_quant_plugin", false);
  RETURN_IF_ERROR(fields.status());
  if (quantization == nullptr) return std::shared_ptr<const quantized::Method>();
  return quantized::ReadCheckpointMethod(*quantization, is_own, path + ": quantization");
}

// Puts the numbers in the place of what stands for them, in every rank's file, and keeps forms
// where there is one file.
Status UnpackCheckpoint(const quantized::Method& method, WeightSource& source) {
  for (artifact::TensorSet& file : source.files) {
    Result<quantized::Unpacked> packed = quantized::UnpackAll(method, file);
    if (!packed.ok()) return packed.status().WithPrefix(source.where);
    source.packed.num_weights += packed->num_weights;
    if (source.files.size() == 1) source.packed.native = std::move(packed->native);
  }
  return Status::Ok();
}

// What the configuration says beside `method`, which has no name in ModelConfig.
nlohmann::json WithoutAlgo(nlohmann::json json) {
  nlohmann::json& quantization = json["quantization"];
  quantization = {
      {"kv_cache_quant_algo", quantization.value("kv_cache_quant_algo", nlohmann::json())}};
  return json;
}

// A CPU keeps no cache in FP8. Upstream's quantiser names one beside every FP8 model, so that there
// the cache has the model's dtype unless it is asked for.
void WidenKvCache(const SourceOptions& options, WeightSource& source) {
  if (options.target != DeviceKind::kCpu || options.fp8_kv_cache || !source.config.fp8_kv_cache)
    return;
  logging::Warning("the KV cache is not in FP8 on a CPU",
                   {{"path", source.where}, {"dtype", DTypeName(source.config.dtype)}});
  source.config.fp8_kv_cache = false;
}

Result<std::unique_ptr<WeightSource>> OpenCheckpoint(const std::filesystem::path& dir,
                                                     const SourceOptions& options) {
  auto source = std::make_unique<WeightSource>();
  source->where = dir.string();
  const std::filesystem::path path = dir / artifact::kConfigFile;
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  ASSIGN_OR_RETURN(const auto method, UpstreamMethod(json, path.string()));
  ASSIGN_OR_RETURN(
      source->config,
      model::ConfigFromCheckpoint(method != nullptr ? WithoutAlgo(json) : json, path.string()));
  ASSIGN_OR_RETURN(Sharding sharding, ReadSharding(json, source->config, path.string()));
  sharding.has_shared_apart = json.contains(model::kSharedExpertWidth);
  if (const Status valid = CheckFiles(source->config, sharding); !valid.ok())
    return valid.WithPrefix(path.string());
  source->ranks = sharding.ranks;
  ASSIGN_OR_RETURN(source->files, artifact::OpenRankFiles(dir, sharding.ranks));
  if (method != nullptr) RETURN_IF_ERROR(UnpackCheckpoint(*method, *source));
  RETURN_IF_ERROR(MakeCheckpointRecipes(sharding, *source));
  FoldHead(*source);
  if (source->config.fp8_kv_cache) NoteKvScales(*source);
  KeepFurtherConfig(json, path.string(), *source);
  if (options.dtype) source->config.dtype = *options.dtype;
  if (method != nullptr) {
    const std::set<std::string> kept = KeepNativeForms(options, *source);
    source->quantization = fmt::format("{}; {}", method->Describe(), WhatBecomes(*source, kept));
    WidenKvCache(options, *source);
    return source;
  }
  artifact::JsonFields fields(path.string(), json);
  const model::QuantAlgo stored = StoredQuantAlgo(*source);
  if (stored != model::QuantAlgo::kNone && stored != model::QuantAlgo::kFp8PerChannelPerToken &&
      !fields.BoolOr("disable_weight_only_quant_plugin", false))
    return Unimplemented(
        fmt::format("{}: disable_weight_only_quant_plugin: got false: {} weights in the layout of "
                    "TensorRT-LLM's plug-in, which fits one kind of GPU, cannot be read; convert "
                    "with --disable-weight-only-quant-plugin, or from the Hugging Face model",
                    path.string(), DTypeName(LinearDType(source->config))));
  RETURN_IF_ERROR(fields.status());
  return source;
}

// What the weights are quantised as, of weights that are `stored` so already.
Status SetAlgo(const SourceOptions& options, model::QuantAlgo stored, model::ModelConfig& config) {
  const bool is_stored = stored != model::QuantAlgo::kNone;
  const model::QuantizationWish wish = {options.quant_algo, options.group_size,
                                        options.quantize_lm_head.value_or(false)};
  if (is_stored && !Grants(config, wish))
    return FailedPrecondition(fmt::format(
        "the weights are {} already{}; convert the model again for others",
        stored == model::QuantAlgo::kFp8PerChannelPerToken ? "FP8" : DTypeName(LinearDType(config)),
        HasGroups(stored) ? fmt::format(" in groups of {}", config.group_size) : ""));
  if (is_stored) return Status::Ok();
  const bool has_own = options.quant_algo.value_or(config.quant_algo) == config.quant_algo;
  config.quant_algo = options.quant_algo.value_or(config.quant_algo);
  if (!HasGroups(config.quant_algo)) {
    if (!options.group_size) return Status::Ok();
    return InvalidArgument(
        fmt::format("group_size: got {}, only beside quant_algo W4A16_GPTQ and W8A16_GPTQ",
                    *options.group_size));
  }
  config.group_size =
      options.group_size.value_or(has_own ? config.group_size : model::kDefaultGroupSize);
  if (!has_own) config.has_zero_point = false;
  return Status::Ok();
}

}  // namespace

void CopyBlock(const WeightRecipe& recipe, const WeightBlock& block, DType dtype, void* out) {
  const size_t to_row_bytes = BytesOf(dtype, block.num_columns);
  if (recipe.is_padded) std::memset(out, 0, static_cast<size_t>(block.num_rows) * to_row_bytes);
  for (const WeightPart& part : recipe.parts) {
    const int64_t begin = std::max(block.row, part.row);
    const int64_t end = std::min(block.row + block.num_rows, part.row + part.num_rows);
    const int64_t left = std::max(block.column, part.column);
    const int64_t right =
        std::min(block.column + block.num_columns, part.column + part.num_columns);
    if (begin >= end || left >= right) continue;
    const StoredTensor& tensor = *part.tensor;
    const int64_t stored_width = tensor.shape.rank() == 1 ? 1 : tensor.shape[1];
    const size_t stored_row_bytes = BytesOf(tensor.dtype, stored_width);
    auto* to = static_cast<std::byte*>(out) +
               static_cast<size_t>(begin - block.row) * to_row_bytes +
               BytesOf(dtype, left - block.column);
    const int64_t stored_row = part.stored_row + begin - part.row;
    const int64_t stored_column = part.stored_column + left - part.column;
    int64_t num_rows = end - begin;
    int64_t run = right - left;  // elements that follow each other in both
    if (tensor.reader != nullptr) {
      CHECK(!part.is_transposed);
      const int64_t at_once = part.row_step == 1 && part.pair_rows == 0 ? num_rows : 1;
      for (int64_t row = stored_row; row < stored_row + num_rows;
           row += at_once, to += to_row_bytes)
        CopyComputed(tensor, {StoredRow(part, row), at_once, stored_column, run}, dtype,
                     to_row_bytes, to);
      continue;
    }
    if (part.is_transposed) {
      const size_t element = SizeOf(tensor.dtype);
      const std::byte* from =
          tensor.data.data() +
          BytesOf(tensor.dtype, stored_column * stored_width + StoredRow(part, stored_row));
      const size_t step = element * static_cast<size_t>(part.row_step);
      for (; num_rows > 0; --num_rows, from += step, to += to_row_bytes)
        ConvertStrided(from, tensor.dtype, stored_row_bytes, run, dtype, to);
      continue;
    }
    if (run == block.num_columns && run == stored_width && part.pair_rows == 0 &&
        part.row_step == 1) {
      run *= num_rows;
      num_rows = 1;
    }
    for (int64_t row = stored_row; row < stored_row + num_rows; ++row, to += to_row_bytes)
      CopyRun(tensor, StoredRow(part, row) * stored_width + stored_column, run, dtype, to);
  }
  if (recipe.added == 0) return;
  CHECK(dtype == DType::kF32);
  for (int64_t i = 0; i < block.num_rows * block.num_columns; ++i)
    static_cast<float*>(out)[i] += recipe.added;
}

void CopyRows(const WeightRecipe& recipe, int64_t row, int64_t num_rows, DType dtype, void* out) {
  const int64_t width = recipe.shape.rank() == 1 ? 1 : recipe.shape[1];
  CopyBlock(recipe, {.row = row, .num_rows = num_rows, .column = 0, .num_columns = width}, dtype,
            out);
}

bool IsQuantized(const WeightRecipe& recipe) {
  const DType dtype = recipe.parts.front().tensor->dtype;
  return ops::IsInteger(dtype) || dtype == DType::kF8E4M3;
}

Result<std::unique_ptr<WeightSource>> OpenWeightSource(const std::filesystem::path& dir,
                                                       const SourceOptions& options) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(dir));
  if (kind == SourceKind::kEngine)
    return InvalidArgument(
        fmt::format("{}: is an engine; a checkpoint, a Hugging Face directory or a GGUF file is "
                    "needed",
                    dir.string()));
  ASSIGN_OR_RETURN(auto source, kind == SourceKind::kCheckpoint ? OpenCheckpoint(dir, options)
                                : kind == SourceKind::kGguf     ? OpenGguf(dir, options)
                                                                : OpenHuggingFace(dir, options));
  model::ModelConfig& config = source->config;
  if (options.target == DeviceKind::kCuda) RETURN_IF_ERROR(WidenForGpu(*source));
  if (const Status set = SetAlgo(options, StoredQuantAlgo(*source), config); !set.ok())
    return set.WithPrefix(dir.string());
  config.fp8_kv_cache = options.fp8_kv_cache.value_or(config.fp8_kv_cache);
  model::SetHead(config, options.quantize_lm_head,
                 model::FactsOf(options.target.value_or(DeviceKind::kCpu)));
  const bool has_fp8 = config.quant_algo == model::QuantAlgo::kFp8PerChannelPerToken;
  const bool must_narrow = options.target == DeviceKind::kCuda && config.dtype == DType::kF32;
  if (!options.dtype && (must_narrow || (has_fp8 && config.dtype == DType::kF32))) {
    source->narrowed_from = config.dtype;
    config.dtype = DType::kBF16;
  }
  if (const Status valid = model::Validate(config); !valid.ok())
    return valid.WithPrefix(dir.string());
  return source;
}

}  // namespace inflight::builder
