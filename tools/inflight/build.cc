// SPDX-License-Identifier: Apache-2.0
// inflight build: checkpoint or Hugging Face directory -> engine directory.
#include "artifact/hub_cache.h"
#include "build_report.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "progress.h"
#include "weight_only.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE [--use-weight-only] [--report]",
    "Builds an engine directory from a checkpoint or a Hugging Face model directory."};

struct Options {
  builder::BuildOptions build;
  std::string dtype = "auto";
  WeightOnlyOptions weight_only;
  bool report = false;
  std::filesystem::path report_text;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Build");
  schema.Add(
      "checkpoint_dir", [](Options& o) -> auto& { return o.build.checkpoint_dir; },
      "Checkpoint, or a Hugging Face model directory, or org/name in the hub's local cache.");
  schema.Add(
      "output_dir", [](Options& o) -> auto& { return o.build.output_dir; },
      "Directory of the engine.");
  schema.Add(
      "dtype", [](Options& o) -> auto& { return o.dtype; },
      "Weights and KV cache; auto keeps the checkpoint's.",
      config::OneOf({"auto", "float32", "bfloat16", "float16"}));
  AddWeightOnly(schema, [](Options& o) -> auto& { return o.weight_only; });
  schema.Add(
      "report", [](Options& o) -> auto& { return o.report; },
      "Print perplexity and logit error of the model as float32, float16, bfloat16 and int8 before "
      "building; without output_dir, that alone. Takes the memory of float32 and one more.",
      config::Switch());
  schema.Add(
      "report_text", [](Options& o) -> auto& { return o.report_text; },
      "Text of the report: a .jsonl file with a document a line in \"text\", or in \"text_input\" "
      "(read) "
      "and \"expected\" (scored), or any other text; default: heldout_text.jsonl of "
      "checkpoint_dir.");
  schema.Section("Limits");
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.build.limits.max_batch_size; },
      "Sequences in one step.", config::Range(1, 1024));
  schema.Add(
      "max_num_tokens", [](Options& o) -> auto& { return o.build.limits.max_num_tokens; },
      "Packed tokens in one step.", config::AtLeast(1));
  schema.Add(
      "max_seq_len", [](Options& o) -> auto& { return o.build.limits.max_seq_len; },
      "Prompt and output of one sequence; 0 is the model's max_position_embeddings.",
      config::AtLeast(0));
  schema.Add(
      "max_input_len", [](Options& o) -> auto& { return o.build.limits.max_input_len; },
      "Prompt of one sequence; 0 is max_seq_len.", config::AtLeast(0));
  schema.Add(
      "max_beam_width", [](Options& o) -> auto& { return o.build.limits.max_beam_width; },
      "Beams of a request; only 1 is built.", config::Range(1, 1));
  schema.Alias("max_decoder_seq_len", "max_seq_len");
  return schema;
}

}  // namespace

int BuildMain(Args args) {
  Options options;
  std::vector<std::string> positionals;
  const auto parsed = ParseInto(args, kUsage, MakeSchema(), options, positionals);
  if (!parsed.ok()) return Fail(parsed.status());
  if (*parsed == Parsed::kHelpShown) return 0;
  if (!positionals.empty())
    return Fail(
        InvalidArgument("unexpected argument '" + positionals[0] + "'; usage: " + kUsage.line));
  if (options.build.checkpoint_dir.empty() || (options.build.output_dir.empty() && !options.report))
    return Fail(
        InvalidArgument("--checkpoint-dir and --output-dir are needed; usage: " + kUsage.line));
  const auto checkpoint_dir = artifact::ResolveModelDir(options.build.checkpoint_dir);
  if (!checkpoint_dir.ok()) return Fail(checkpoint_dir.status().WithPrefix("--checkpoint-dir"));
  options.build.checkpoint_dir = *checkpoint_dir;
  if (options.dtype != "auto") options.build.dtype = DTypeFromName(options.dtype);
  const auto algo = options.weight_only.Algo();
  if (!algo.ok()) return Fail(algo.status());
  options.build.quant_algo = *algo;
  if (options.report) {
    const Status reported = PrintAccuracy(options.build, options.report_text);
    if (!reported.ok() || options.build.output_dir.empty())
      return reported.ok() ? 0 : Fail(reported);
  } else if (!options.report_text.empty()) {
    return Fail(InvalidArgument("--report-text: needs --report"));
  }
  ProgressBar bar("build");
  const Status status = builder::Build(
      options.build,
      [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); });
  return status.ok() ? 0 : Fail(status);
}

std::vector<config::OptionInfo> BuildOptionInfos() { return MakeSchema().options(); }

}  // namespace inflight::tool
