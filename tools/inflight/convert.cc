// SPDX-License-Identifier: Apache-2.0
// inflight convert: Hugging Face directory -> checkpoint.
#include "artifact/hub_cache.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "progress.h"
#include "weight_only.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight convert --model-dir HF --output-dir CHECKPOINT [--dtype auto] [--use-weight-only]",
    "Converts a Hugging Face model directory to a checkpoint (config.json and rank0.safetensors)."};

struct Options {
  builder::ConvertOptions convert;
  WeightOnlyOptions weight_only;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Convert");
  schema.Add(
      "model_dir", [](Options& o) -> auto& { return o.convert.model_dir; },
      "Hugging Face model directory, or org/name in the hub's local cache.");
  schema.Add(
      "output_dir", [](Options& o) -> auto& { return o.convert.output_dir; },
      "Directory of the checkpoint.");
  schema.Add(
      "dtype", [](Options& o) -> auto& { return o.convert.dtype; },
      "Stored dtype; auto is the model's own, float16 where that is float32 or not named.",
      config::OneOf({"auto", "float32", "bfloat16", "float16"}));
  schema.Add(
      "tp_size", [](Options& o) -> auto& { return o.convert.tp_size; },
      "Tensor-parallel ranks; only 1 is built.", config::AtLeast(1));
  schema.Add(
      "pp_size", [](Options& o) -> auto& { return o.convert.pp_size; },
      "Pipeline-parallel ranks; only 1 is built.", config::AtLeast(1));
  AddWeightOnly(schema, [](Options& o) -> auto& { return o.weight_only; });
  return schema;
}

}  // namespace

int ConvertMain(Args args) {
  Options parsed_options;
  builder::ConvertOptions& options = parsed_options.convert;
  std::vector<std::string> positionals;
  const auto parsed = ParseInto(args, kUsage, MakeSchema(), parsed_options, positionals);
  if (!parsed.ok()) return Fail(parsed.status());
  if (*parsed == Parsed::kHelpShown) return 0;
  if (!positionals.empty())
    return Fail(
        InvalidArgument("unexpected argument '" + positionals[0] + "'; usage: " + kUsage.line));
  if (options.model_dir.empty() || options.output_dir.empty())
    return Fail(InvalidArgument("--model-dir and --output-dir are needed; usage: " + kUsage.line));
  const auto model_dir = artifact::ResolveModelDir(options.model_dir);
  if (!model_dir.ok()) return Fail(model_dir.status().WithPrefix("--model-dir"));
  options.model_dir = *model_dir;
  const auto algo = parsed_options.weight_only.Algo();
  if (!algo.ok()) return Fail(algo.status());
  options.quant_algo = algo->value_or(model::QuantAlgo::kNone);
  ProgressBar bar("convert");
  const Status status = builder::Convert(
      options, [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); });
  return status.ok() ? 0 : Fail(status);
}

std::vector<config::OptionInfo> ConvertOptionInfos() { return MakeSchema().options(); }

}  // namespace inflight::tool
