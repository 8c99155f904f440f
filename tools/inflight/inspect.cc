// SPDX-License-Identifier: Apache-2.0
// inflight inspect: what is in a model, checkpoint, engine or repository, and its memory plan.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "artifact/checkpoint.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "inspect_repository.h"
#include "loader/loader.h"
#include "model_directory.h"
#include "model_options.h"
#include "model_report.h"
#include "tensor/device.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

const Usage kUsage = {
    "inflight inspect DIR [--json]",
    "Shows what is in a Hugging Face, checkpoint, engine or model-repository "
    "directory, and the memory that serving it takes;\nof a repository also what "
    "becomes of each key of its configurations; of a folder with config.json alone the "
    "memory that the model would take."};

struct Options : ModelOptions {
  bool json = false;
  std::optional<double> memory_gib;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Inspect");
  schema.Add(
      "json", [](Options& o) -> auto& { return o.json; },
      "Print what is found of a model as a JSON object.", config::Switch());
  schema.Add("memory_gib", [](Options& o) -> auto& { return o.memory_gib; },
             "Size the model for so much memory, in place of what is free here.",
             {.min = 0, .max = 1e6, .choices = {}, .excludes_min = true});
  AddDevice(schema, [](Options& o) -> auto& { return o.device; });
  AddDType(
      schema, [](Options& o) -> auto& { return o.dtype; },
      "Plan for this dtype; for Hugging Face and checkpoint directories; auto is the model's own.");
  AddQuantization(schema, [](Options& o) -> auto& { return o.quantization; });
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.executor.max_batch_size; },
      "Plan for so many sequences in a step.", config::AtLeast(1));
  schema.Add(
      "max_num_tokens", [](Options& o) -> auto& { return o.executor.max_num_tokens; },
      "Plan for so many tokens in a step.", config::AtLeast(1));
  schema.Add(
      "max_seq_len", [](Options& o) -> auto& { return o.executor.max_seq_len; },
      "Plan for sequences of so many tokens, and show what the weights and one of them take in "
      "each "
      "type; at most the model's.",
      config::AtLeast(1));
  schema.Alias("max_model_len", "max_seq_len");
  schema.Alias("ctx_size", "max_seq_len");
  schema.Alias("ctx", "max_seq_len");
  schema.Add(
      "max_kv_tokens", [](Options& o) -> auto& { return o.executor.max_kv_tokens; },
      "Cap on tokens in the KV cache.", config::AtLeast(1));
  schema.Add(
      "kv_cache_free_memory_fraction",
      [](Options& o) -> auto& { return o.executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", config::Range(0.001, 0.999));
  AddGpuWeights(schema, [](Options& o) -> auto& { return o.executor; });
  AddRanks(schema, [](Options& o) -> auto& { return o; });
  return schema;
}

std::string NameOf(Device& device) {
  if (device.kind() == DeviceKind::kCpu) return device.name();
  const cuda::DeviceProperties& gpu = device.cuda();
  return fmt::format("{}, {} of compute capability {}.{}", device.name(), gpu.name,
                     gpu.compute_major, gpu.compute_minor);
}

constexpr double kGiB = 1 << 30;

// Why there is no plan, where that is not an error of the model: an engine for a device that this
// machine does not have, or for another than the one that is asked for, or a model that the device
// cannot run.
bool IsNoPlan(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kUnimplemented;
}

Status InspectModel(const fs::path& dir, OpenOptions options, const Options& asked) {
  ASSIGN_OR_RETURN(options.devices, FindDevices(options.device));
  const bool has_weights = !builder::HasConfigAlone(dir);
  if (!has_weights && (options.tensor_parallel_size || options.pipeline_parallel_size ||
                       loader::RankSizesOf(options).says_experts()))
    return InvalidArgument(
        "--tensor-parallel-size, --pipeline-parallel-size, --moe-ep-size, --moe-tp-size: without "
        "weights the whole model is sized; leave them out, and give --memory-gib of all devices "
        "together");
  const Result<std::shared_ptr<Device>> device = loader::DeviceFor(dir, options);
  ASSIGN_OR_RETURN(builder::OpenOptions open, loader::BuilderOptions(dir, options));
  if (device.ok()) open.target = (*device)->kind();
  open.ranks = {};  // the whole model
  ASSIGN_OR_RETURN(builder::Description description,
                   has_weights ? builder::Describe(dir, open) : builder::DescribeConfig(dir, open));
  const std::optional<int> max_seq_len = options.executor.max_seq_len;
  if (max_seq_len && *max_seq_len > description.config.max_position_embeddings)
    return InvalidArgument(fmt::format(
        "--max-seq-len: got {}, the model has at most {} positions (give no more than those)",
        *max_seq_len, description.config.max_position_embeddings));
  const uint64_t free_bytes = device.ok() ? (*device)->FreeBytes() : 0;
  ModelReport report =
      ReportOf(dir, std::move(description),
               asked.memory_gib ? static_cast<uint64_t>(*asked.memory_gib * kGiB) : free_bytes,
               options.executor.kv_cache_free_memory_fraction, max_seq_len);
  report.has_weights = has_weights;
  const auto make_plan = [&]() -> Result<loader::Plan> {
    if (!device.ok()) return device.status();
    if (!has_weights) return FailedPrecondition("the weights are not there");
    return loader::MakePlan(dir, options);
  };
  const Result<loader::Plan> plan = make_plan();
  const bool is_error = device.ok() && !plan.ok() && !IsNoPlan(plan.status());
  if (asked.json) {
    if (is_error) return plan.status();
    const std::string text = ToJson(report, plan.ok() ? &*plan : nullptr, plan.status().message())
                                 .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
    fmt::print("{}\n", text);
    return Status::Ok();
  }
  fmt::print("{}", ToText(report));
  if (!has_weights || asked.memory_gib || max_seq_len)
    fmt::print("\nSizes{}:\n{}", has_weights ? "" : ", of weights that are not here",
               SizesText(report));
  if (is_error) return plan.status();
  if (!has_weights) return Status::Ok();
  if (!plan.ok()) {
    fmt::print("\nweights       {} bytes; no memory plan: {}\n", report.description.weight_bytes,
               plan.status().message());
  } else {
    fmt::print("\nMemory plan on {} ({:.1f} GiB free):\n{}", NameOf(**device),
               static_cast<double>(free_bytes) / kGiB, plan->ToString());
  }
  return Status::Ok();
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string argument, OnlyPositional(kUsage, positionals, "directory"));
  ASSIGN_OR_RETURN(fs::path dir, ModelDirectory(argument));
  if (dir.filename() == artifact::kConfigFile && fs::is_regular_file(dir))
    dir = dir.has_parent_path() ? dir.parent_path() : fs::path(".");
  ASSIGN_OR_RETURN(const OpenOptions open, options.ToOpenOptions());
  if (const auto repository = InspectRepository(dir, open, options.json)) return *repository;
  return InspectModel(dir, open, options);
}

}  // namespace

int InspectMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual InspectManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
