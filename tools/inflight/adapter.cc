// SPDX-License-Identifier: Apache-2.0
// inflight adapter: an adapter (LoRA) as peft saves it -> the arrays that requests send. Takes the
// flags of TensorRT-LLM's hf_lora_convert.py.
#include <array>
#include <bit>
#include <cstring>

#include "artifact/output_file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/peft_adapter.h"
#include "command_line.h"
#include "commands.h"
#include "tensor/element.h"
#include "upstream_flags.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight adapter --input DIR --output DIR [--storage-type float16]",
    "Makes model.lora_weights.npy and model.lora_config.npy, which requests send as lora_weights "
    "and lora_config, from an adapter (LoRA) as peft saves it."};

struct Options {
  std::filesystem::path input;
  std::filesystem::path output;
  std::string storage_type = "float16";
  std::string log_level = "info";
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Adapter");
  schema.Add(
      "input", [](Options& o) -> auto& { return o.input; },
      "Directory of adapter_config.json and adapter_model.safetensors or adapter_model.bin.");
  schema.Alias("-i", "input");
  schema.Alias("in_file", "input");
  schema.Add(
      "output", [](Options& o) -> auto& { return o.output; }, "Directory of the two files.");
  schema.Alias("-o", "output");
  schema.Alias("out_dir", "output");
  schema.Add(
      "storage_type", [](Options& o) -> auto& { return o.storage_type; },
      "Type of the weights; numpy has none for bfloat16, whose files hold two bytes an element "
      "(V2).",
      config::OneOf({"float32", "float16", "bfloat16"}));
  schema.Alias("-t", "storage_type");
  schema.Add(
      "log_level", [](Options& o) -> auto& { return o.log_level; }, "What is logged.",
      config::OneOf(LogLevels()));
  return schema;
}

// numpy's format 1.0 (numpy/lib/format.py): magic, version, length, a dict, padded to 64 bytes.
Status WriteNpy(const std::filesystem::path& path, const std::string& descr,
                std::array<int64_t, 3> shape, std::span<const std::byte> data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" +
                       std::to_string(shape[0]) + ", " + std::to_string(shape[1]) + ", " +
                       std::to_string(shape[2]) + "), }";
  constexpr size_t kPrefix = 10;
  while ((kPrefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
            static_cast<char>(header.size() >> 8)};
  bytes += header;
  ASSIGN_OR_RETURN(artifact::OutputFile file, artifact::OutputFile::Create(path));
  RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(bytes))));
  RETURN_IF_ERROR(file.WriteAt(bytes.size(), data));
  return file.Commit(bytes.size() + data.size());
}

std::vector<std::byte> InDType(const LoraTensors& tensors, DType dtype) {
  const size_t count = tensors.weights.size() / sizeof(float);
  std::vector<std::byte> out(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i)
    StoreFloat(out.data(), dtype, static_cast<int64_t>(i),
               LoadFloat(tensors.weights.data(), DType::kF32, static_cast<int64_t>(i)));
  return out;
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  RETURN_IF_ERROR(NoPositionals(kUsage, positionals));
  if (options.input.empty()) return UsageError(kUsage, "--input is needed");
  if (options.output.empty()) return UsageError(kUsage, "--output is needed");
  SetLogLevel(options.log_level);
  ASSIGN_OR_RETURN(const LoraTensors tensors, builder::ReadPeftAdapter(options.input));
  if (!tensors.biases.empty())
    return Unimplemented("--input: '" + options.input.string() +
                         "' has biases, for which lora_weights has no place (serve the folder by "
                         "--lora-modules or --lora-dir)");
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error)
    return InvalidArgument("--output: cannot make '" + options.output.string() +
                           "': " + error.message());
  const DType dtype = *DTypeFromName(options.storage_type);
  const std::string descr = dtype == DType::kF32 ? "<f4" : dtype == DType::kF16 ? "<f2" : "|V2";
  const auto num_rows = static_cast<int64_t>(tensors.rows.size());
  RETURN_IF_ERROR(WriteNpy(options.output / "model.lora_weights.npy", descr,
                           {1, num_rows, tensors.width}, InDType(tensors, dtype)));
  std::vector<int32_t> config;
  for (const LoraTensors::Row& row : tensors.rows)
    config.insert(config.end(), {row.module, row.layer, row.rank});
  RETURN_IF_ERROR(WriteNpy(options.output / "model.lora_config.npy", "<i4", {1, num_rows, 3},
                           std::as_bytes(std::span(config))));
  logging::Info("adapter converted",
                {{"path", options.output.string()}, {"rows", num_rows}, {"width", tensors.width}});
  return Status::Ok();
}

}  // namespace

int AdapterMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual AdapterManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
